"""The peers that confirm on disk, with one message at a time or with 64 in flight."""

from __future__ import annotations

from typing import Any

from bench.disk import flushes
from bench.disk.figures import BATCH, SIZE
from bench.disk.limits import Raw
from bench.disk.servers import Beanstalkd, Nats, Redis, Shmq
from bench.disk.sqlite import Sqlite
from bench.row import Contestant
from bench.tcp.load import Load, load
from bench.tcp.server import Server

#: The labels of the disk's limits.
RAW_ONE = "C, write and fdatasync, one by one"
RAW_MANY = f"C, write and fdatasync, {BATCH} at a time"
RAW_ZEROS = "C, the same over zeros that are on disk"


class Kept(Load):
    """A load on a server that answers once the message is on disk."""

    def __init__(
        self,
        label: str,
        server: type[Server],
        work: str,
        *,
        connections: int = 1,
        window: int = 1,
        batch: int = 1,
    ) -> None:
        super().__init__(
            label, server, work, connections=connections, window=window, batch=batch, size=SIZE
        )

    def load(self, port: int, messages: int) -> dict[str, Any]:
        """See :class:`bench.tcp.load.Load`."""
        together = self.options["c"] * max(self.options["w"], self.options["b"])
        with flushes.at_least(messages // together):
            return load(self.work, port, n=messages, f=1, **self.options)


def over_tcp(what: str, **how: int) -> Contestant:
    """The same for shmq over TCP: PRODUCE, or PRODUCE_BATCH, with the flag 0x02."""
    work = "batch" if how.get("batch", 1) > 1 else "produce"
    return Kept(f"shmq {what}", Shmq, work, **how)


#: The brokers: their labels, servers and loads.
BROKERS: tuple[tuple[str, type[Server], str], ...] = (
    ("Redis LPUSH, appendfsync=always", Redis, "redis-push"),
    ("beanstalkd put, -f0", Beanstalkd, "beanstalkd-put"),
    ("NATS JetStream publish, sync always", Nats, "nats-publish"),
)


def brokers() -> list[tuple[str, type[Server], str]]:
    """The usable brokers: an installed version may be too old to sync each message."""
    return [broker for broker in BROKERS if broker[1] is not Nats or not Nats.is_too_old()]


def one_by_one() -> list[Contestant]:
    """One producer, which waits for each answer."""
    kept = [Kept(label, server, work) for label, server, work in brokers()]
    return [*kept, Sqlite("SQLite FULL, a transaction each", 1)]


def producers() -> list[Contestant]:
    """64 producers, each of which waits for each answer. SQLite has one writer at a time."""
    return [
        Kept(f"{label}, {BATCH} connections", server, work, connections=BATCH)
        for label, server, work in brokers()
    ]


def batches() -> list[Contestant]:
    """One producer with 64 in flight, or with transactions of 64."""
    kept = [
        Kept(f"{label}, {BATCH} in flight", server, work, window=BATCH)
        for label, server, work in brokers()
    ]
    return [*kept, Sqlite(f"SQLite FULL, transactions of {BATCH}", BATCH)]


def labels(contestants: list[Contestant]) -> list[str]:
    """The labels of the contestants, for a bar."""
    return [contestant.label for contestant in contestants]


def raw_one() -> list[Contestant]:
    """The disk's limit for one message at a time, and the same over zeros."""
    return [Raw(RAW_ONE, 1, "append"), Raw(RAW_ZEROS, 1, "overwrite", "for information")]


def raw_many() -> list[Contestant]:
    """The disk's limit for 64 at a time, and the same over zeros."""
    return [Raw(RAW_MANY, BATCH, "append"), Raw(RAW_ZEROS, BATCH, "overwrite", "for information")]
