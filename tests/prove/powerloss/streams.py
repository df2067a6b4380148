"""Durable streams while the disk is watched: what is done, and what was promised of them.

The writer, the files and the recovery are the real ones; of shared memory there is a model, as
the disk is what is tried here.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shmq.api.names import SHM
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_partition_writer import StreamPartitionWriters
from shmq.disk.persistence.stream_recovery import StoredStream, plan_streams
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import sweep_streams
from shmq.disk.storage.file_header import StreamIdentity
from shmq.disk.storage.paths import partition_directory
from shmq.disk.storage.stream_files import StreamFiles
from shmq.disk.storage.stream_meta import Generation, eras_among
from tests.prove.powerloss.model import DiskModel
from tests.prove.powerloss.recorded_disk import Fault, Recording
from tests.prove.powerloss.state_directory import StateDirectory
from tests.prove.powerloss.states import State, crash_states
from tests.prove.powerloss.trace import Outcome
from tests.support.stream_entries import entry, read_values

DATA: Final = "data"
SIZES: Final = WriteSizes(segment=4096, ahead=2048, commit=2048, early=512)
#: All streams have one salt, so that a record of one that was deleted looks like one of the next.
SALT: Final = 0x55667788


class Died(BaseException):
    """The process that writes was killed."""


@dataclass(frozen=True)
class Known:
    """What is known of one stream at a moment."""

    #: Each partition's values by offset that are on disk, as far as they must still be there.
    must: tuple[Mapping[int, bytes], ...] = ()
    #: The offset up to which each is on disk, kept or not, and up to which it was appended to.
    synced: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()
    #: What it was made with, and repartitioned to.
    eras: tuple[Generation, ...] = ()
    #: How far the groups are: at least, and at most.
    groups: tuple[int, int] = (0, 0)
    #: Whether its deletion has begun, and whether it is over.
    doomed: bool = False
    gone: bool = False


@dataclass
class Ring:
    """A partition in memory, for its writer."""

    stream: Stream
    number: int
    behind: int = 0
    synced: int = 0
    next: int = 0
    entries: dict[int, bytes] = field(default_factory=dict)
    code: int = 0
    sealed: bool = False

    @property
    def created_at(self) -> int:
        return self.behind + 1000

    @property
    def finished(self) -> bool:
        return self.sealed and self.synced == self.next

    def collect(
        self, offset: int, most_bytes: int
    ) -> tuple[list[memoryview], int, int, int, int] | None:
        taken: list[bytes] = []
        while offset + len(taken) < self.next and sum(map(len, taken)) < most_bytes:
            taken.append(self.entries[offset + len(taken)])
        if not taken:
            return None
        cut = len(taken) // 2
        pieces = [memoryview(b"".join(part)) for part in (taken[:cut], taken[cut:]) if part]
        return pieces, offset, offset + len(taken), 0, len(taken)

    def publish(self, offset: int) -> None:
        self.synced = offset
        self.stream.host.noted()

    def fail(self, code: int) -> None:
        self.code = code

    def await_entries(self, offset: int, timeout: float) -> bool:
        return offset < self.next


class Stream:
    """A stream of the application: what it appended, and what it knows."""

    def __init__(self, host: StreamHost, name: str, identity: int, partitions: int = 2) -> None:
        self.host = host
        self.control = self
        self.deleted = False
        self.name = name
        self.identity = identity
        self.options: dict[str, Any] = {"partitions": partitions, "segment_bytes": 4096}
        self.alterations = self.stored = 0
        self.logs = [Ring(self, number) for number in range(partitions)]
        #: All values that an offset ever had, by partition; more than one after a loss.
        self.values: list[dict[int, list[bytes]]] = [{} for _ in range(partitions)]
        self.kept_from = [0] * partitions
        self.committed = self.committed_on_disk = 0
        self.gone = False
        self.kept: StreamPartitionWriters | None = None

    @property
    def partitions(self) -> int:
        return len(self.logs)

    @property
    def open_partitions(self) -> list[int]:
        return [ring.number for ring in self.logs if not ring.sealed]

    def repartition(self, partitions: int) -> None:
        begin = len(self.logs)
        for ring in self.logs:
            ring.sealed = True
        self.logs += [Ring(self, begin + number, begin) for number in range(partitions)]
        self.values += [{} for _ in range(partitions)]
        self.kept_from += [0] * partitions
        self.host.noted()

    def alter(self, **options: Any) -> None:
        self.options |= options
        self.alterations += 1
        self.host.noted()

    def append(self, partition: int, size: int = 60) -> None:
        ring = self.logs[partition]
        assert not ring.sealed
        offset = ring.next
        told = self.values[partition].setdefault(offset, [])
        value = (b"%d.%d.%d " % (partition, offset, len(told)) * size)[:size]
        told.append(value)
        ring.next += 1
        self.host.noted()
        ring.entries[offset] = entry(offset, value)

    def know(self) -> Known:
        must = tuple(
            {
                offset: self.values[number][offset][-1]
                for offset in range(self.kept_from[number], ring.synced)
            }
            for number, ring in enumerate(self.logs)
        )
        return Known(
            must,
            tuple(ring.synced for ring in self.logs),
            tuple(ring.next for ring in self.logs),
            tuple(eras_among(self.logs)),
            (self.committed_on_disk, self.committed),
            self.deleted,
            self.gone,
        )

    def close(self) -> None:
        """The handle is given back."""


class StreamHost:
    """An application with streams, and their writer, which can be killed."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.streams: dict[int, Stream] = {}
        self.recording = Recording(root, self._know)  # type: ignore[arg-type]
        self.noted: Callable[[], None] = self.recording.note
        self.dead = False
        self._start()

    def create(self, name: str, identity: int) -> Stream:
        stream = Stream(self, name, identity << 32 | SALT)
        self.streams[stream.identity] = stream
        self.step()
        return stream

    def step(self, times: int = 99) -> None:
        """Write until nothing is left to write."""
        for stream in list(self.streams.values()):
            if not self.dead and not stream.gone:
                try:
                    self._step(stream, times)
                except Died:
                    self.dead = True

    def _step(self, stream: Stream, times: int) -> None:
        if stream.kept is None:
            with contextlib.suppress(OSError):
                stream.kept = self._keep(stream)
        if stream.kept is None:
            return
        if stream.deleted:
            with contextlib.suppress(OSError):
                stream.kept.close()
                stream.gone = True
                self.noted()
            return
        known = 0
        while known < len(stream.kept.partitions):
            known = len(stream.kept.partitions)
            for partition in reversed(stream.kept.partitions):  # those that came, first
                for _ in range(times):
                    if not partition.step():
                        break
            stream.kept._grow_at = 0.0
            stream.kept.grow()

    def retain(self, stream: Stream, partition: int, most_bytes: int) -> None:
        """Old segments go."""
        if not self.dead and stream.kept is not None:
            journal = stream.kept.partitions[partition].journal
            # What goes is not known before; all that is not in the last segment may.
            stream.kept_from[partition] = stream.logs[partition].synced
            self.noted()
            with contextlib.suppress(OSError):
                journal.retain(most_bytes, None)
            stream.kept_from[partition] = min(stream.kept_from[partition], journal.earliest)
            self.noted()

    def commit(self, stream: Stream) -> None:
        """A group goes on, and the card says so."""
        stream.committed += 1
        self.noted()
        if not self.dead and stream.kept is not None:
            try:
                stream.kept.note_groups()
            except OSError:
                return
            except Died:
                self.dead = True
                return
            stream.committed_on_disk = stream.committed
            self.noted()

    def delete(self, stream: Stream) -> None:
        stream.deleted = True
        self.noted()
        self.step()

    def die_at(self, number: int) -> None:
        calls = 0

        def fault(_: int, method: str) -> int | None:
            nonlocal calls
            calls += 1
            if calls >= number:
                raise Died
            return None

        self.recording.fault = fault

    def restart(self) -> None:
        """Another writer comes."""
        self.recording.fault = None
        self.disk.close_all()
        for stream in self.streams.values():
            stream.kept = None
        self._start()
        self.step()

    def lose_memory(self) -> None:
        """The machine goes on, the memory is lost, and what is in the files comes back."""
        self.recording.fault = None
        self.disk.close_all()
        self._start()
        sweep_streams(self.disk, set())
        found = {one.identity: one for one in plan_streams(self.disk).values()}
        for identity, stream in list(self.streams.items()):
            stream.kept = None
            if identity in found and not stream.gone:
                self._come_back(stream, found[identity])
            elif not stream.gone:
                assert stream.deleted or not any(ring.synced for ring in stream.logs)
                del self.streams[identity]
        self.step()

    def _come_back(self, stream: Stream, stored: StoredStream) -> None:
        assert stored.error is None, stored.error
        stream.deleted = False
        begin, end = stored.eras[-1].begin, stored.eras[-1].end
        assert not any(ring.synced for ring in stream.logs[end:])
        for each in (stream.logs, stream.values, stream.kept_from):
            del each[end:]
        for ring in stream.logs[begin:]:
            ring.sealed = False
        for ring, last in zip(stream.logs, stored.ends, strict=True):
            assert ring.synced <= last.next <= ring.next
            assert not ring.sealed or last.next == ring.next
            ring.synced = ring.next = last.next
            ring.entries.clear()
            for offset in [each for each in stream.values[ring.number] if each >= last.next]:
                del stream.values[ring.number][offset]
        stream.committed = stream.committed_on_disk = stored.groups.get("g", 0)

    def _keep(self, stream: Stream) -> StreamPartitionWriters:
        identity = StreamIdentity(stream.name, 1, stream.identity, stream.options)
        return StreamPartitionWriters(
            self.disk, stream, identity, SIZES, lambda: {"g": stream.committed}
        )

    def _start(self) -> None:
        self.disk = self.recording.open(DATA)
        self.dead = False
        self.disk.make()

    def _know(self) -> Mapping[int, Known]:
        return {identity: stream.know() for identity, stream in self.streams.items()}


# ---- what is done ----


def appends(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for size in (10, 60, 700, 1500, 5):
        for partition in (0, 1, 0):
            stream.append(partition, size)
        host.step()


def rolls(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for _ in range(9):
        stream.append(0, 900)
        host.step()


def altered(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for size in (8192, 16384, 4096):
        for partition in (0, 1):
            stream.append(partition, 1500)
        stream.alter(segment_bytes=size)
        host.step()
        for _ in range(4):
            stream.append(0, 1500)
            host.step()


def groups(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for _ in range(4):
        stream.append(1)
        host.step()
        host.commit(stream)


def retained(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for _ in range(14):
        stream.append(0, 900)
        host.step()
        host.retain(stream, 0, 6000)
    host.retain(stream, 0, 0)
    stream.append(0, 900)
    host.step()
    host.restart()
    host.retain(stream, 0, 0)  # all that is left is a segment without records
    host.restart()


def deleted(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for _ in range(3):
        stream.append(0, 300)
        stream.append(1, 300)
        host.step()
    host.delete(stream)
    again = host.create("s", 2)
    for _ in range(3):
        again.append(0, 310)
        host.step()


def killed(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for number in range(1, 9):
        stream.append(0, 400)
        stream.append(0, 30)
        host.die_at(number)
        host.step()
        stream.append(1)
        host.commit(stream)
        host.restart()


def lost(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for number in range(1, 10):
        for _ in range(3):
            stream.append(0, 300)
        host.die_at(number)
        host.step()
        stream.append(0, 700)
        host.lose_memory()
        stream.append(0, 200)
        host.step()


def repartitioned(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for partitions in (3, 4):
        for partition in stream.open_partitions:
            stream.append(partition, 500)
        host.step(1)
        for _ in range(3):  # more than one commit has
            stream.append(stream.open_partitions[-1], 1500)
        stream.repartition(partitions)
        stream.append(stream.open_partitions[0], 400)
        host.commit(stream)
        host.step(1)
        stream.append(stream.open_partitions[0], 30)
        host.step()


def killed_repartitioning(host: StreamHost) -> None:
    for number in range(3, 20, 4):
        stream = host.create(f"s{number}", number)
        stream.append(0, 300)
        stream.append(1, 30)
        stream.repartition(3)
        stream.append(3, 300)
        host.die_at(number)
        host.step()
        stream.append(4)
        if number % 8 == 3:
            host.restart()
        else:
            host.lose_memory()
        stream.append(stream.open_partitions[1])
        host.step()
        host.delete(stream)


def failing_repartition(host: StreamHost) -> None:
    stream = host.create("s", 1)
    stream.append(0, 300)
    stream.append(1, 30)
    stream.repartition(3)
    stream.append(3, 300)
    for _ in range(3):
        host.step()
        stream.append(4, 300)


def failing_appends(host: StreamHost) -> None:
    stream = host.create("s", 1)
    for _ in range(5):
        stream.append(0, 300)
        host.step()
    host.commit(stream)
    stream.append(0, 2000)
    host.step()
    host.step()


def at_random(host: StreamHost) -> None:
    streams = [host.create("s", 1), host.create("t", 2)]
    chance = host.chance
    for _ in range(40):
        stream = chance.choice(streams)
        if stream.deleted:
            continue
        draw = chance.random()
        if draw < 0.5:
            for _ in range(chance.randrange(1, 4)):
                partition = chance.choice(stream.open_partitions)
                stream.append(partition, chance.choice((1, 60, 500, 1500)))
        elif draw < 0.75:
            host.step(chance.choice((1, 99)))
        elif draw < 0.8:
            host.commit(stream)
        elif draw < 0.85:
            host.retain(stream, chance.randrange(2), chance.choice((0, 5000)))
        elif draw < 0.87:
            stream.repartition(len(stream.open_partitions) + 1)
        elif draw < 0.91:
            host.die_at(chance.randrange(1, 9))
        else:
            host.restart()
    host.step()


WORKLOADS: Final = (
    appends,
    rolls,
    altered,
    groups,
    retained,
    deleted,
    killed,
    lost,
    repartitioned,
    killed_repartitioning,
    failing_appends,
)


# ---- the trial ----


def record(
    work: Callable[[StreamHost], None], root: Path, seed: int, fault: Fault | None
) -> StreamHost:
    """What that does to the disk."""
    host = StreamHost(root, seed)
    host.recording.fault = fault
    work(host)
    host.recording.note()
    host.recording.silent = True
    host.disk.close_all()
    return host


def try_crashes(host: StreamHost, most: int, seed: int) -> Outcome:
    """Cut the power after each step, recover, and compare with what was known."""
    with tempfile.TemporaryDirectory(prefix="shmq-powerloss-", dir=SHM) as folder:
        return _tried(host, StateDirectory(Path(folder)), most, seed)


def _tried(host: StreamHost, directory: StateDirectory, most: int, seed: int) -> Outcome:
    chance, model, outcome = random.Random(seed), DiskModel(), Outcome()
    moment: list[Any] = [{}]
    for step in [*host.recording.trace.steps, None]:
        if step is not None and step.event is None:
            moment.append(step.expectation)
            continue
        _try(host, model, directory, moment, most, chance, outcome)
        if step is None or step.event is None or outcome.wrong:
            break
        model.apply(step.event)
        moment = [step.expectation]
    return outcome


def _try(
    host: StreamHost, model: DiskModel, directory: StateDirectory,
    moment: list[Mapping[int, Known]], most: int, chance: random.Random, outcome: Outcome,
) -> None:  # fmt: skip
    choice = crash_states(model, most, chance)
    outcome.crashes += 1
    for state in choice.states:
        outcome.states += 1
        try:
            found = recovered(directory, state)
        except Exception as error:
            outcome.wrong.append(f"recovery gave up: {type(error).__name__}: {error}")
            return
        for known in moment:
            outcome.checks += 1
            outcome.wrong += complaints(known, found, host.streams)


@dataclass(frozen=True)
class Found:
    """A stream that was recovered: its values by offset, and where it goes on."""

    values: list[dict[int, bytes]]
    next: list[int]
    groups: int
    eras: list[Generation]


def recovered(directory: StateDirectory, state: State) -> dict[int, Found]:
    """The streams by identity, of this state."""
    directory.lay_out(state)
    disk = Disk(directory.root / DATA)
    if sweep_streams(disk, set()):
        directory.dirty = True
    plan = plan_streams(disk)
    if not all((directory.root / path).exists() for path in state.files):
        directory.dirty = True  # what was never begun was removed
    found = {}
    for stored in plan.values():
        if stored.error is not None:
            raise stored.error
        values = [
            dict(_values(disk, stored, number, end.earliest, end.next))
            for number, end in enumerate(stored.ends)
        ]
        found[stored.identity] = Found(
            values, [end.next for end in stored.ends], stored.groups.get("g", 0), stored.eras
        )
    return found


def _values(
    disk: Disk, stored: StoredStream, number: int, start: int, until: int
) -> Iterator[tuple[int, bytes]]:
    files = StreamFiles(disk.under(partition_directory(stored.name, stored.identity, number)))
    while start < until:
        block = files.block(start, until)
        assert block is not None
        yield from read_values(block.data)
        start = block.next


def complaints(
    known: Mapping[int, Known], found: Mapping[int, Found], streams: Mapping[int, Stream]
) -> list[str]:
    """What was promised and is not so."""
    wrong = []
    for identity, one in known.items():
        there = found.get(identity)
        if there is not None and one.gone:
            wrong.append(f"{identity:x} is back")
        elif there is None and not one.doomed and any(one.must):
            wrong.append(f"{identity:x} is lost")
        elif there is not None:
            wrong += _differences(one, there, streams[identity])
    return wrong


def _differences(known: Known, found: Found, stream: Stream) -> Iterator[str]:
    if not known.doomed and not known.groups[0] <= found.groups <= known.groups[1]:
        yield f"the groups are at {found.groups}, not {known.groups}"
    yield from _shapes(known, found)
    for number, (must, values) in enumerate(zip(known.must, found.values, strict=False)):
        for offset, value in must.items():
            if values.get(offset) != value and not known.doomed:
                yield f"{number}/{offset} is {values.get(offset)!r:.20}, not {value!r:.20}"
        for offset, value in values.items():
            if not value.startswith((b"%d.%d." % (number, offset))[: len(value)]):
                yield f"{number}/{offset} is {value!r:.20}, which was never there"
        if not known.synced[number] <= found.next[number] <= known.begun[number]:
            yield f"{number} goes on with {found.next[number]}, not up to {known.begun[number]}"
        if list(values) != list(range(found.next[number] - len(values), found.next[number])):
            yield f"{number} has gaps: {list(values)}"
    del stream


def _shapes(known: Known, found: Found) -> Iterator[str]:
    """What of the partitions is wrong: they are of one shape, and then all before it is there."""
    there = found.eras
    if there != list(known.eras[: len(there)]):
        yield f"its eras are {there}, not the first of {known.eras}"
    for number, must in enumerate(known.must):
        if number >= there[-1].end and must:
            yield f"partition {number} is lost"
    for number, begun in enumerate(known.begun[: there[-1].begin]):
        if found.next[number] != begun:
            yield f"{number} is sealed at {found.next[number]}, and had records up to {begun}"
