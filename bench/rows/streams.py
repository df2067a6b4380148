"""Streams: appending, one reader, and four readers at once."""

from __future__ import annotations

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.peers import shared_stream
from bench.row import Contestant, Figure, Role, Row, at_least, times
from bench.scratch import scratch
from bench.stage import Failed, Side, Stage, together
from bench.stream import Stream
from bench.way import BATCH

APPENDED = Figure("rate", "records/s appended")
READ = Figure("read", "records/s read")
LEAST, MOST = 1 << 10, 1 << 21
#: The expected records per second.
FULL_SPEED = 10e6


def append_row() -> Row:
    """One by one."""
    ours = shared_stream.OneByOne
    return Row(
        key="stream-append",
        title="64 B appended one by one, read in batches",
        contestants=[Stream(ours, 64)],
        bars=[at_least(ours.label, 3e6)],
        limit="a call of Python for each record",
    )


def batches_row() -> Row:
    """64 at a time."""
    ours = shared_stream.Batches
    return Row(
        key="stream-batches",
        title="64 B appended in batches of 64, read in batches",
        contestants=[Stream(ours, 64)],
        bars=[at_least(ours.label, 15e6)],
        limit="a bytes object a record on the reader's side",
    )


class Readers(Contestant):
    """A producer on one core, and that many readers on the other."""

    role: Role = "shmq"

    def __init__(self, readers: int) -> None:
        self.readers = readers
        self.records = LEAST
        self.label = f"shmq, {readers} reader{'s' * (readers > 1)}"

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.records = max(LEAST, int(min(FULL_SPEED * seconds, MOST)) // BATCH * BATCH)

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        first, second = two_cores()
        with scratch() as broker:
            name = broker.namespace
            broker.create_stream("s", 1)
            sides = [
                Side(_append, name, self.records, core=first),
                *[Side(_read, name, self.records, core=second) for _ in range(self.readers)],
            ]
            spent, *read = together(sides)
        return {
            APPENDED.key: self.records / spent * 1e9,
            READ.key: min(count / took * 1e9 for count, took in read),
        }


def _append(stage: Stage, name: str, count: int) -> int:
    append_many = shmq.connect(name).stream("s").append_many
    batch = bodies.make(64, BATCH)
    stage.meet()
    begun = now()
    for _ in range(count // BATCH):
        append_many(batch, partition=0)
    return now() - begun


def _read(stage: Stage, name: str, count: int) -> tuple[int, int]:
    """The number of records read, and the time; skips records that are gone already."""
    stream = shmq.connect(name).stream("s")
    wanted = bodies.make(64, BATCH)
    at = read = 0
    stage.meet()
    begun = now()
    while at < count:
        try:
            records = stream.read(0, at, block=True)
        except shmq.OffsetOutOfRange as gone:
            at = gone.earliest
            continue
        values = records.values()
        if values[0] != wanted[at % BATCH]:
            raise Failed(f"record {at} is not what was appended")
        read += len(values)
        at = records.next_offset
    return read, now() - begun


def readers_row() -> Row:
    """One, and four."""
    one, four = Readers(1), Readers(4)
    return Row(
        key="stream-readers",
        title="64 B appended in batches, by one process and read by one or four",
        contestants=[one, four],
        figures=(APPENDED, READ),
        bars=[
            at_least(one.label, 10e6, key=READ.key),
            times(four.label, one.label, 0.9),
        ],
        limit="readers take no lock: what they cost is the cache lines that they take away",
    )
