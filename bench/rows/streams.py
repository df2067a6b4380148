"""Streams: appending, reading, one reader, and four readers at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.peers import shared_stream
from bench.row import SECONDS, Contestant, Figure, Role, Row, Turn, beside, times
from bench.rows.packed import RING_MANY, RING_ONE, ring
from bench.scratch import scratch
from bench.stage import Cast, Failed, Side, Stage
from bench.stream import Stream
from bench.way import BATCH

APPENDED = Figure("rate", "records/s appended")
READ = Figure("read", "records/s read")
#: Records of 64 B that the ring of a single reader holds.
HELD = 1 << 14


def append_row() -> Row:
    """One by one."""
    ours = shared_stream.OneByOne
    return Row(
        key="stream-append",
        title="64 B appended one by one, read in batches by another process",
        contestants=[Stream(ours, 64), ring(RING_ONE)],
        bars=[beside(ours.label, RING_ONE)],
        limit="a call of Python for each record",
    )


def batches_row() -> Row:
    """64 at a time."""
    ours = shared_stream.Batches
    return Row(
        key="stream-batches",
        title="64 B appended in batches of 64, read in batches by another process",
        contestants=[Stream(ours, 64), ring(RING_MANY)],
        bars=[beside(ours.label, RING_MANY)],
        limit="a bytes object a record on the reader's side",
    )


class Alone(Contestant):
    """One process that appends to a stream, or reads what is in it, again and again."""

    role: Role = "shmq"
    most = 10_000

    def __init__(self, label: str, batch: int, reads: bool = False) -> None:
        self.label = label
        self.batch = batch
        self.reads = reads

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            broker.create_stream("s", 1, ring_bytes=4 << 20)
            act = _read_alone if self.reads else _append_alone
            side = Side(act, broker.namespace, self.batch, core=two_cores()[1])
            with Cast([side]) as cast:

                def turn(rounds: int) -> dict[str, float]:
                    (taken,) = cast.turn(rounds)
                    seconds = taken / 1e9
                    return {APPENDED.key: rounds * bodies.ROUND / seconds, SECONDS: seconds}

                yield turn


def _append_alone(stage: Stage, name: str, batch: int) -> None:
    """Append rounds; the records of the last one are compared at the end of each turn."""
    with shmq.connect(name) as broker:
        stream = broker.stream("s")
        sent = bodies.make(64)
        parts = [sent[at : at + batch] for at in range(0, len(sent), batch)]
        append, append_many = stream.append, stream.append_many
        for rounds in stage.turns():
            begun = now()
            for _ in range(rounds):
                if batch == 1:
                    for body in sent:
                        append(body)
                else:
                    for part in parts:
                        append_many(part, partition=0)
            stage.tell(now() - begun)
            _check(stream, stream.latest(0) - len(sent), sent)


def _read_alone(stage: Stage, name: str, batch: int) -> None:
    """Read rounds from a ring whose records stay, each compared with what was appended."""
    with shmq.connect(name) as broker:
        stream = broker.stream("s")
        sent = bodies.make(64)
        for _ in range(HELD // len(sent)):
            stream.append_many(sent, partition=0)
        for rounds in stage.turns():
            at = 0
            begun = now()
            for _ in range(rounds):
                at = _check(stream, at, sent, batch) % HELD
            stage.tell(now() - begun)


def _check(stream: shmq.Stream, at: int, sent: list[bytes], batch: int = bodies.ROUND) -> int:
    """Compare the records from that offset on with the bodies; the offset behind them."""
    found: list[bytes] = []
    while len(found) < len(sent):
        records = stream.read(0, at, min(batch, len(sent) - len(found)))
        found += records.values()
        at = records.next_offset
    if found != sent:
        bodies.check(found, sent)
    return at


def alone_row() -> Row:
    """The calls of one process, without another one."""
    contestants = [
        Alone("shmq append", 1),
        Alone("shmq append_many(64)", BATCH),
        Alone("shmq read of 1,024", bodies.ROUND, reads=True),
    ]
    return Row(
        key="stream-alone",
        title="64 B appended or read by one process alone",
        contestants=[*contestants, ring(RING_MANY)],
        figures=[Figure("rate", "records/s")],
        bars=[beside(contestant.label, RING_MANY) for contestant in contestants],
        limit="a call of Python for each append, a bytes object for each record that is read",
    )


class Readers(Contestant):
    """A producer on one core, and that many readers on the other."""

    role: Role = "shmq"
    least, most = 4, 1 << 15

    def __init__(self, readers: int) -> None:
        self.readers = readers
        self.label = f"shmq, {readers} reader{'s' * (readers > 1)}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        first, second = two_cores()
        with scratch() as broker:
            name = broker.namespace
            broker.create_stream("s", 1)
            sides = [
                Side(_append, name, core=first),
                *[Side(_read, name, core=second) for _ in range(self.readers)],
            ]
            with Cast(sides) as cast:

                def turn(batches: int) -> dict[str, float]:
                    spent, *read = cast.turn(batches)
                    return {
                        APPENDED.key: batches * BATCH / spent * 1e9,
                        READ.key: min(count / took * 1e9 for count, took in read),
                        SECONDS: max(spent, *[took for _, took in read]) / 1e9,
                    }

                yield turn


def _append(stage: Stage, name: str) -> None:
    append_many = shmq.connect(name).stream("s").append_many
    batch = bodies.make(64, BATCH)
    for batches in stage.turns():
        stage.meet()
        begun = now()
        for _ in range(batches):
            append_many(batch, partition=0)
        stage.tell(now() - begun)


def _read(stage: Stage, name: str) -> None:
    """Tell the number of records read, and the time; records that are gone are skipped."""
    stream = shmq.connect(name).stream("s")
    wanted = bodies.make(64, BATCH)
    at = end = 0
    for batches in stage.turns():
        end += batches * BATCH
        read = 0
        stage.meet()
        begun = now()
        while at < end:
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
        stage.tell((read, now() - begun))


def readers_row() -> Row:
    """One, and four."""
    one, four = Readers(1), Readers(4)
    return Row(
        key="stream-readers",
        title="64 B appended in batches, by one process and read by one or four",
        contestants=[one, four],
        figures=(APPENDED, READ),
        bars=[times(four.label, one.label, 0.9)],
        limit="readers take no lock: what they cost is the cache lines that they take away",
    )
