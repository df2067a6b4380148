"""One producer and eight subscribers of 1 MiB: the rate, and the copies of a record in memory."""

from __future__ import annotations

from pathlib import Path

from bench import stream
from bench.machine import two_cores
from bench.peers import iceoryx, shared_stream
from bench.row import RATE, Figure, Row, at_most, times
from bench.rows.mib import COUNT, SIZE
from bench.scratch import unique_name
from bench.stage import PATIENCE, Side, Stage, together
from bench.way import Way

SUBSCRIBERS = 8
MEMORY = Figure("memory", "MiB of shared memory", higher_is_better=False)
#: The size of the ring and of its index, in MiB.
ONE_COPY = (shared_stream.FanOut.room + (1 << 20)) >> 20


class FanOut(stream.Stream):
    """A sender on one core, and the subscribers on the other."""

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        way = self.kind(unique_name(), self.size)
        sender, receivers = two_cores()
        sent = (way, self.rounds, self.count)
        try:
            way.create()
            begun, weight, *ended = together(
                [
                    Side(stream.send, *sent, core=sender),
                    Side(_weigh, way.name, core=None),
                    *[Side(stream.receive, *sent, core=receivers) for _ in range(SUBSCRIBERS)],
                ],
                PATIENCE,
            )
        finally:
            way.remove()
        spent = max(ended) - begun
        return {RATE.key: self.rounds * self.count / spent * 1e9, MEMORY.key: weight / (1 << 20)}


def _weigh(stage: Stage, name: str) -> int:
    """Bytes of the pages of the files with that name, after the timed messages were received."""
    for _ in range(stream.MEETINGS - 1):
        stage.meet()
    weight = sum(path.stat().st_blocks * 512 for path in Path("/dev/shm").glob(f"*{name}*"))
    stage.meet()
    return weight


def row() -> Row:
    """Beside iceoryx2, which has one copy, too."""
    kinds: list[type[Way]] = [shared_stream.FanOut, iceoryx.FanOut]
    ours, theirs = (kind.label for kind in kinds)
    return Row(
        key="stream-fan-out",
        title="1 MiB to 8 subscribers, read in place",
        contestants=[FanOut(kind, SIZE, COUNT) for kind in kinds],
        figures=(RATE, MEMORY),
        bars=[times(ours, theirs, 4), at_most(ours, ONE_COPY, "MiB", MEMORY.key)],
        limit="one copy of 1 MiB into the ring, and its checksum",
    )
