"""A durable stream: batches confirmed on disk, and records read back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import shmq
from bench.disk import folder
from bench.disk.figures import BANDWIDTH
from bench.disk.limits import Sequential
from bench.disk.snapshot import DISK, SHARE
from bench.disk.writer import Writer, alone
from bench.machine import now
from bench.row import RATE, Contestant, Role
from bench.scratch import unique_name
from bench.stage import Failed, Stage

#: The stream of a measurement, and its one ring.
STREAM, RING = "s", 64 << 20
#: Records of a call, and the number of threads: some gather records while others are synced.
LOT, THREADS = 2048, 8
#: Bytes of a read.
READ = 1 << 20


class Appended(Contestant):
    """Batches of records of one size from a few threads, each confirmed; and the disk's rate.

    Before and after, the C loop writes half as many bytes. The confirmed records are read back
    from the files.
    """

    role: Role = "shmq"

    def __init__(self, label: str, size: int, lots: int) -> None:
        self.label = label
        self.size = size
        self.lots = lots
        self.disk = Sequential(lots * LOT * size // 2)
        self.note = f"{THREADS} threads, {LOT} records a call"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.disk.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Appended(self.label, self.size, THREADS)

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        with _stream() as made:
            before = self.disk.bandwidth()
            taken = alone(_append, made.namespace, self.size, self.lots)
            after = self.disk.bandwidth()
            alone(_read, made.namespace, self.size, self.lots * LOT)
        count = self.lots * LOT
        bandwidth, disk = count * self.size * 1e3 / taken, 2 / (1 / before + 1 / after)
        return {
            RATE.key: count * 1e9 / taken,
            BANDWIDTH.key: bandwidth,
            DISK.key: disk,
            SHARE.key: bandwidth / disk,
        }


class Replayed(Contestant):
    """All records in the files of a stream; the files are in the page cache."""

    role: Role = "shmq"

    def __init__(self, label: str, size: int, lots: int) -> None:
        self.label = label
        self.size = size
        self.lots = lots

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return folder.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Replayed(self.label, self.size, THREADS)

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        count = self.lots * LOT
        with _stream(ring_bytes=1 << 20) as made:
            alone(_append, made.namespace, self.size, self.lots)
            taken = alone(_read, made.namespace, self.size, count)
        return {RATE.key: count * 1e9 / taken, BANDWIDTH.key: count * self.size * 1e3 / taken}


@contextlib.contextmanager
def _stream(ring_bytes: int = RING) -> Iterator[Writer]:
    """A durable stream of one partition and its writer, for the block."""
    with folder.scratch_folder() as where:
        writer = Writer(unique_name(), where)
        alone(_create, writer.namespace, ring_bytes)
        try:
            writer.start()
            yield writer
        except Failed:
            writer.check()
            raise
        finally:
            writer.end()
            alone(_delete, writer.namespace)


# ---- in separate processes ----


def _create(stage: Stage, namespace: str, ring_bytes: int) -> None:
    stage.meet()
    with shmq.connect(namespace) as broker:
        broker.create_stream(STREAM, 1, ring_bytes=ring_bytes, durability="journal")


def _delete(stage: Stage, namespace: str) -> None:
    stage.meet()
    with shmq.connect(namespace) as broker:
        broker.delete_stream(STREAM)


def _append(stage: Stage, namespace: str, size: int, lots: int) -> int:
    """The time of that many confirmed batches, in ns."""
    lot = [n.to_bytes(4, "little").ljust(size, b"\xa5") for n in range(LOT)]
    with shmq.connect(namespace) as broker:
        stream = broker.stream(STREAM)

        def work() -> None:
            for _ in range(lots // THREADS):
                stream.append_many(lot, partition=0, block=True, confirm="disk", timeout=60)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        stage.meet()
        begun = now()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = now() - begun
        if stream.latest(0) != lots * LOT:
            raise Failed(f"{stream.latest(0)} records of {lots * LOT} were appended")
        return taken


def _read(stage: Stage, namespace: str, size: int, count: int) -> int:
    """The time to read all values, in ns. Raises Failed if any is missing."""
    with shmq.connect(namespace) as broker:
        stream = broker.stream(STREAM)
        stage.meet()
        begun, at, found = now(), 0, 0
        while at < count:
            records = stream.read(0, at, count, max_bytes=READ)
            found += sum(map(len, records.values()))
            at = records.next_offset
        taken = now() - begun
        if found != count * size:
            raise Failed(f"{found} bytes of {count * size} were read")
        return taken
