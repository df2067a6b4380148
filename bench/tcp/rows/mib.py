"""Bodies of 1 MiB: their rate, compared with a bare socket, and their cost in memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Self

from bench.limits import RateLimit
from bench.row import Contestant, Figure, Role, Row, Turn, at_most, times
from bench.tcp.load import Load
from bench.tcp.server import Server, fresh
from bench.tcp.servers import Shmq

SIZE = 1 << 20
#: Bodies in flight.
WINDOW = 8

REST = Figure("rest", "MiB", higher_is_better=False)
PEAK = Figure("peak", "MiB", higher_is_better=False)
GROWN = Figure("grown", "MiB more than at rest", higher_is_better=False)
#: Bodies that pass in a turn, each way.
PASSED = 32
#: How much more memory than at rest the server's processes may use, in MiB.
MOST = 32
#: Seconds between two samples of the memory.
STEP = 0.005


def row() -> Row:
    """Putting, and getting with acknowledgement."""
    put = Load("shmq PRODUCE", Shmq, "produce", window=WINDOW, size=SIZE)
    got = Load("shmq SUBSCRIBE, an ACK each", Shmq, "subscribe", window=WINDOW, size=SIZE)
    limit = RateLimit("C, a socket of the loopback", "loopback", SIZE, -1, -1)
    return Row(
        key="tcp-mib",
        title="1 MiB, one connection, eight bodies in flight",
        contestants=[put, got, limit],
        bars=[times(ours.label, limit.label, 0.7) for ours in (put, got)],
        limit="a copy between the socket's memory and the queue's",
    )


class Watched(Contestant):
    """The memory of a server's processes at rest, and its maximum under load."""

    label = "shmq, 1 MiB in and out"
    role: Role = "shmq"

    def __init__(self) -> None:
        self.ways = [
            Load("in", Shmq, "produce", window=WINDOW, size=SIZE),
            Load("out", Shmq, "subscribe", window=WINDOW, size=SIZE),
        ]

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.ways[0].missing()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with fresh(Shmq) as server:
            self._pass(server)
            rest = server.memory()

            def turn(_: int) -> dict[str, float]:
                with _Watch(server) as watch:
                    self._pass(server)
                found = {REST.key: rest, PEAK.key: watch.peak, GROWN.key: watch.peak - rest}
                return {key: value / (1 << 20) for key, value in found.items()}

            yield turn

    def _pass(self, server: Server) -> None:
        for way in self.ways:
            way.measure(server.port, PASSED)


class _Watch:
    """The maximum memory of the server's processes during the block."""

    def __init__(self, server: Server) -> None:
        self.peak = server.memory()
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._see()

    def _look(self) -> None:
        while not self._over.wait(STEP):
            self._see()

    def _see(self) -> None:
        self.peak = max(self.peak, self._server.memory())


def memory_row() -> Row:
    """The private memory of the server's processes."""
    return Row(
        key="tcp-mib-memory",
        title="Memory of the server's own while bodies of 1 MiB pass",
        contestants=[Watched()],
        figures=[REST, PEAK, GROWN],
        bars=[at_most(Watched.label, MOST, GROWN.unit, GROWN.key)],
        limit="a buffer for what has come of a frame, and one for what the socket did not take",
    )
