"""A pipe that loses, doubles, reorders or damages a message: what a measurement must find.

Run as ``python -m tests.prove.bench.faulty HOW FAULT AT``: what ``HOW`` measures (``stream`` or
``trip``) is passed by such a pipe, which does ``FAULT`` to message number ``AT``.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

from bench import bodies
from bench.peers.standard import Pipe
from bench.row import Contestant
from bench.stage import PATIENCE, Failed
from bench.stream import Stream
from bench.trip import Trip
from bench.way import Send, SendOne

TURNS, ROUNDS = 2, 3
#: Messages of a whole stream: a round before each turn's clock starts, those while it runs, and
#: one after all turns.
STREAM = (TURNS * (1 + ROUNDS) + 1) * bodies.ROUND
#: Where a fault must be found: before a clock starts, while the first and the second run, before
#: the second turn (what the first turn did at its end), and as the very last.
PLACES = [5, 2 * bodies.ROUND, (1 + ROUNDS) * bodies.ROUND - 1, STREAM - 1500, STREAM - 1]
#: Seconds until a message counts as lost, where one is.
SOON = 3.0


class FaultyPipe(Pipe):
    """Does :attr:`fault` to message number :attr:`at`."""

    label = "faulty pipe"
    fault = "none"
    at = 0

    def sender(self, bodies: list[bytes]) -> Send:
        put = self.one_sender()

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def one_sender(self) -> SendOne:
        put = self.writing.send_bytes
        count = itertools.count()
        late: list[bytes] = []

        def send_one(body: bytes) -> None:
            if next(count) != self.at:
                put(body)
                while late:
                    put(late.pop())
            elif self.fault == "reorder":
                late.append(body)
            else:
                for changed in FAULTS[self.fault](body):
                    put(changed)

        return send_one


FAULTS: dict[str, Callable[[bytes], list[bytes]]] = {
    "none": lambda body: [body],
    "lose": lambda body: [],
    "double": lambda body: [body, body],
    "damage": lambda body: [body[:40] + bytes([body[40] ^ 1]) + body[41:]],
    "shorten": lambda body: [body[:-1]],
    "reorder": lambda body: [],
}


class Configured(FaultyPipe):
    """The one that the command line asks for, in every process of it.

    On its way back, nothing happens to a body: the same damage again would undo the first.
    """

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        if not name.endswith("-pong"):
            self.fault, self.at = sys.argv[2], int(sys.argv[3])


def main() -> None:
    patience = SOON if sys.argv[2] in ("lose", "reorder") else PATIENCE
    contestant: Contestant = (
        Stream(Configured, 64, patience=patience)
        if sys.argv[1] == "stream"
        else Trip(Configured, "one core", (0, 0), patience=patience)
    )
    try:
        with contestant.opened() as turn:
            for _ in range(TURNS):
                turn(ROUNDS)
    except Failed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
