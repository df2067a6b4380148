"""A durable stream: batches confirmed on disk, and records read back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import shmq
from bench.disk import folder
from bench.disk.figures import BANDWIDTH
from bench.disk.writer import Writer, alone
from bench.machine import now
from bench.row import RATE, Contestant, Role, Turn
from bench.scratch import unique_name
from bench.stage import Cast, Failed, Side, Stage

#: The stream of a measurement, and its one ring.
STREAM, RING = "s", 64 << 20
#: Records of a call, and the number of threads: some gather records while others are synced.
LOT, THREADS = 2048, 8
#: Bytes of a read.
READ = 1 << 20


class Appended(Contestant):
    """Batches of records of one size from a few threads, each call confirmed.

    At the end of a visit the records are read back from the files.
    """

    role: Role = "shmq"

    def __init__(self, label: str, size: int, lots: int) -> None:
        self.label = label
        self.size = size
        self.lots = lots
        self.note = f"{THREADS} threads, {LOT} records a call"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return folder.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Appended(self.label, self.size, THREADS)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        turns = 0
        with _stream() as made:
            side = Side(_append, made.namespace, self.size, self.lots, core=None)
            with Cast([side]) as cast:

                def turn(_: int) -> dict[str, float]:
                    nonlocal turns
                    turns += 1
                    (taken,) = cast.turn(turns)
                    count = self.lots * LOT
                    return {
                        RATE.key: count * 1e9 / taken,
                        BANDWIDTH.key: count * self.size * 1e3 / taken,
                    }

                yield turn
            alone(_read, made.namespace, self.size, turns * self.lots * LOT)


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

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        count = self.lots * LOT
        with _stream(ring_bytes=1 << 20) as made:
            with Cast([Side(_append, made.namespace, self.size, self.lots, core=None)]) as cast:
                cast.turn(1)

            def turn(_: int) -> dict[str, float]:
                taken = alone(_read, made.namespace, self.size, count)
                bandwidth = count * self.size * 1e3 / taken
                return {RATE.key: count * 1e9 / taken, BANDWIDTH.key: bandwidth}

            yield turn


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


def _append(stage: Stage, namespace: str, size: int, lots: int) -> None:
    """Append that many confirmed batches in each turn; it tells the time in ns."""
    lot = [n.to_bytes(4, "little").ljust(size, b"\xa5") for n in range(LOT)]
    with shmq.connect(namespace) as broker:
        stream = broker.stream(STREAM)

        def work() -> None:
            for _ in range(lots // THREADS):
                stream.append_many(lot, partition=0, block=True, confirm="disk", timeout=60)

        for turn in stage.turns():
            threads = [threading.Thread(target=work) for _ in range(THREADS)]
            begun = now()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            stage.tell(now() - begun)
            if stream.latest(0) != turn * lots * LOT:
                raise Failed(f"{stream.latest(0)} records of {turn * lots * LOT} were appended")


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
