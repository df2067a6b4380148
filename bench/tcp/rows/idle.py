"""10,000 idle connections: their memory, and their cost for active connections."""

from __future__ import annotations

from bench.row import Contestant, Figure, Role, Row, at_least, at_most
from bench.tcp.load import Load, idle
from bench.tcp.server import fresh
from bench.tcp.servers import Shmq

CONNECTIONS = 10_000
#: How often a rate is measured in each state.
LOOKS = 3

MEMORY = Figure("memory", "KiB a connection", higher_is_better=False)
#: A rate with the idle connections, as a share of the rate without them.
PUT = Figure("put", "share of the rate")
GOT = Figure("got", "share of the rate")


class Crowd(Contestant):
    """A separate server, measured without, with and again without idle connections."""

    role: Role = "shmq"

    def __init__(self, connections: int = CONNECTIONS) -> None:
        self.connections = connections
        self.label = f"shmq, {CONNECTIONS:,} idle connections"
        self.put = Load("put", Shmq, "produce")
        self.got = Load("got", Shmq, "subscribe", window=256, batch=64)

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.put.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        few = Crowd(50)
        few.put.tiny()
        few.got.tiny()
        return few

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.put.calibrate(seconds / LOOKS)
        self.got.calibrate(seconds / LOOKS)

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        with fresh(Shmq) as server:
            before = self._rates(server.port)
            alone = server.memory()
            with idle(server.port, self.connections):
                together = server.memory()
                beside = self._rates(server.port)
            after = self._rates(server.port)
        put, got = (
            2 * among / (first + last)
            for first, among, last in zip(before, beside, after, strict=True)
        )
        each = max(together - alone, 1) / self.connections / 1024
        return {MEMORY.key: each, PUT.key: put, GOT.key: got}

    def _rates(self, port: int) -> list[float]:
        """The best of a few rates of each work: other load on the machine only slows them."""
        return [
            max(load.measure(port)["rate"] for _ in range(LOOKS)) for load in (self.put, self.got)
        ]


def row() -> Row:
    """The memory of the server's processes, without the kernel's own."""
    contestant = Crowd()
    return Row(
        key="tcp-idle",
        title="10,000 idle connections, and one that puts or gets beside them",
        contestants=[contestant],
        figures=[MEMORY, PUT, GOT],
        bars=[
            at_most(contestant.label, 20, "KiB a connection", MEMORY.key),
            at_least(contestant.label, 0.8, " of the rate", PUT.key),
            at_least(contestant.label, 0.8, " of the rate", GOT.key),
        ],
        limit="a session, a socket object and a place in the event loop",
    )
