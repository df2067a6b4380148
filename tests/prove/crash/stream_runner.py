"""Deaths in the operations of a stream.

After each death the survivor finds the records that there were, and of what was being appended
all or nothing; it appends, finds every record by its offset, and repeats what a producer was at,
which is there once. What has a journal is then written, loses its memory, and is as it was.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import shmq
from shmq.api.names import SHM
from shmq.api.stream_options import StreamDurability
from shmq.client.local.stream import attach
from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_partition_writer import StreamPartitionWriters
from shmq.disk.persistence.stream_writer import StreamWriter
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import StreamIdentity
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core, _stream
from tests.prove.crash.death import Broken, Play
from tests.support.memory_loss import bring_back, lose_memory

MODULES = (_stream, _core)
RING = 64 << 10
PRODUCER = 77
#: Where what is durable has its files, as long as one death is judged.
FILES = SHM / f"shmq-crash-{os.getpid()}"


def one(stream: Any) -> None:
    stream.append(b"new 0", key=b"k", headers={"h": 1}, partition=0)


def piece(stream: Any) -> None:
    stream.append_many([b"new %d" % n for n in range(9)], partition=0)


def large(stream: Any) -> None:
    """Several times round what is left of the ring: records go, and it wraps."""
    stream.append_many([b"new %d " % n + bytes(9000) for n in range(3)], partition=0)


def produce(stream: Any) -> None:
    stream.append_many(
        [b"new %d" % n for n in range(4)], partition=0, producer=PRODUCER, sequence=0
    )


def lend(stream: Any) -> None:
    """A loan that is dropped, and one that is appended."""
    stream.loan(3000, partition=0).drop()
    with stream.loan(3000, partition=0) as view:
        view[:] = b"new 0".ljust(3000)


def wake(stream: Any) -> None:
    """A loop that waits, and is woken with the survivor's by a record."""
    watch = _stream.LoopWatch(stream.control, stream.namespace.processes.own_number(), 0)
    watch.arm()
    stream.logs[0].arm()
    one(stream)
    watch.leave()


def pin(stream: Any) -> None:
    stream.read(0, stream.earliest(0), view=True, pin=True).release()


def create(stream: Any) -> None:
    with shmq.connect(stream.namespace.name) as broker:
        broker.create_stream("another", 2, ring_bytes=RING).append(b"x", partition=1)


def repartition(stream: Any) -> None:
    stream.repartition(2)


def repartition_kept(stream: Any) -> None:
    """The same of a durable one."""
    stream.repartition(2)


def keep(stream: Any) -> None:
    """The writer of a durable one that was repartitioned without a writer."""
    handle = attach(stream.namespace, "s")
    control = handle.control
    identity = StreamIdentity("s", control.stream_id, control.identity, control.options)
    kept = StreamPartitionWriters(Disk(FILES), handle, identity, WriteSizes())
    known = 0
    while known < len(kept.partitions):
        known = len(kept.partitions)
        for partition in kept.partitions:
            while partition.step():
                continue
        kept.grow()
    kept.close()


def delete(stream: Any) -> None:
    with shmq.connect(stream.namespace.name) as broker:
        broker.delete_stream("s")


def _alter(stream: Any, **options: Any) -> None:
    with shmq.connect(stream.namespace.name) as broker:
        broker.alter_stream("s", **options)


def alter(stream: Any) -> None:
    """Options of which the ring is none."""
    _alter(stream, retention_seconds=1e6, max_record_bytes=999, retention_bytes=RING)


def grow(stream: Any) -> None:
    """A ring that has not wrapped, and after that one record."""
    _alter(stream, ring_bytes=3 * RING)
    one(stream)


def grow_wrapped(stream: Any) -> None:
    """A ring that has wrapped and is full, and after that one record."""
    _alter(stream, ring_bytes=3 * RING)
    one(stream)


def grow_kept(stream: Any) -> None:
    """A durable one."""
    _alter(stream, ring_bytes=3 * RING, retention_seconds=1e6)


SCENARIOS: dict[str, Callable[[Any], None]] = {
    act.__name__: act
    for act in (
        one, piece, large, produce, lend, wake, pin, create, repartition, repartition_kept, keep,
        delete, alter, grow, grow_wrapped, grow_kept,
    )
}  # fmt: skip
#: Those of streams whose ring is full.
WRAPPED = frozenset({"large", "grow_wrapped"})
#: Those of streams with a journal.
DURABLE = frozenset({"repartition_kept", "keep", "grow_kept"})


def survive(name: str, broker: Any, play: Play) -> bool:
    """One death, judged; True if the victim got through without dying."""
    durability: StreamDurability = "journal" if name in DURABLE else "memory"
    stream = broker.create_stream("s", 1, ring_bytes=RING, durability=durability)
    for n in range(150 if name in WRAPPED else 20):
        stream.append(b"old %d" % n + bytes(500), partition=0)
    if name == "keep":
        stream.repartition(2)
        stream.append(b"came", partition=1)
    before = contents(stream)

    def prepare() -> Callable[[], object]:
        stream.namespace.processes.own_number()
        return lambda: SCENARIOS[name](stream)

    finished = play(prepare) if name != "wake" else play_waiting(stream, play, prepare)
    if name == "delete":
        judge_deletion(broker, finished)
    elif name == "repartition":
        judge_partitions(broker, stream, before, finished)
    elif name == "repartition_kept":
        judge_partitions(broker, stream, before, finished)
        judge_files(broker, stream)
    elif name == "keep":
        judge_files(broker, stream)
    elif name == "grow_kept":
        judge_growth(broker, stream, finished)
        judge_files(broker, stream)
    else:
        judge(name, stream, before, finished)
    if name in {"alter", "grow", "grow_wrapped"}:
        judge_growth(broker, stream, finished and name != "alter")
    return finished


def play_waiting(stream: Any, play: Play, prepare: Callable[[], Callable[[], object]]) -> bool:
    """Let the victim die while this process waits as an event loop does."""
    pool = WakeupPool.of(stream.namespace)
    wakeup = pool.take()
    watch = _stream.LoopWatch(stream.control, wakeup.process, wakeup.number)
    watch.arm()
    stream.logs[0].arm()
    latest = stream.latest(0)
    finished = play(prepare)
    stream.logs[0].wake_all()  # as the guardian does after a death
    if stream.latest(0) > latest and (watch.is_armed or not wakeup.clear()):
        raise Broken("the loop was not woken")
    # The party of the victim, if it died with one, is free, as all but this process's.
    others = [_stream.LoopWatch(stream.control, wakeup.process, 1000 + n) for n in range(63)]
    for other in others:
        other.arm()
        if not other.is_armed:
            raise Broken("a dead process has a party")
    for one_watch in (watch, *others):
        one_watch.leave()
    pool.give_back(wakeup)
    return finished


def contents(stream: Any) -> dict[int, bytes]:
    """Every record that can be read, by its offset."""
    found, offset, latest = {}, stream.earliest(0), stream.latest(0)
    while offset < latest:
        records = stream.read(0, offset, 7)
        found.update({record.offset: record.value for record in records})
        offset = records.next_offset
    return found


def judge(name: str, stream: Any, before: dict[int, bytes], finished: bool) -> None:
    """Look before anything is mended, then append on, and look again."""
    check(name, before, contents(stream), finished)
    appended = [stream.append(b"after %d" % n, partition=0) for n in range(3)]
    after = contents(stream)
    for it in appended:
        if after.pop(it.offset) != b"after %d" % (it.offset - appended[0].offset):
            raise Broken(f"offset {it.offset} is not what was appended there")
    check(name, before, after, finished)
    for offset in after:
        (record,) = stream.read(0, offset, 1)
        if (record.offset, record.value) != (offset, after[offset]):
            raise Broken(f"offset {offset} leads to {record}")
    if name == "produce":
        produce(stream)
        if sum(value == b"new 0" for value in contents(stream).values()) != 1:
            raise Broken("what the producer repeated is not there once")


def check(name: str, before: dict[int, bytes], after: dict[int, bytes], finished: bool) -> None:
    """The old records are as they were, as far as they are there, and the new ones all there."""
    if list(after) != list(range(min(after), min(after) + len(after))):
        raise Broken(f"the offsets have gaps: {list(after)}")
    new = {offset: after[offset] for offset in after if offset not in before}
    for offset in after.keys() & before.keys():
        if after[offset] != before[offset]:
            raise Broken(f"offset {offset} has changed")
    if name not in WRAPPED and not before.keys() <= after.keys():
        raise Broken(f"records are gone: {before.keys() - after.keys()}")
    wanted = {"one": 1, "piece": 9, "large": 3, "produce": 4, "lend": 1, "wake": 1}.get(name, 0)
    if name.startswith("grow"):
        wanted = min(len(new), 1)
    if len(new) != wanted and (finished or new):
        raise Broken(f"{len(new)} of {wanted} records are there")
    for n, value in enumerate(new.values()):
        if not value.startswith(b"new %d" % n):
            raise Broken(f"record {n} is {value[:20]!r}")


def look_back(before: dict[int, bytes], after: dict[int, bytes]) -> None:
    """The records that are still there are as they were."""
    if list(after) != list(range(min(after), min(after) + len(after))):
        raise Broken(f"the offsets have gaps: {list(after)}")
    if any(after[offset] != before[offset] for offset in after.keys() & before.keys()):
        raise Broken("a record has changed")


def judge_growth(broker: Any, stream: Any, finished: bool) -> None:
    """The options are the old ones or the new, its partition follows them, and it can grow more."""
    with broker.stream("s") as other:
        other.append(b"x", partition=0)
        options = other.options
        if other.logs[0].ring_bytes < options.ring_bytes:
            raise Broken(f"the ring has {other.logs[0].ring_bytes} of {options.ring_bytes} bytes")
        if finished and options.ring_bytes != 3 * RING:
            raise Broken("the ring has not grown")
        if {options.ring_bytes, options.retention_seconds} - {RING, 3 * RING, 1e6, None}:
            raise Broken(f"these are no options that it had: {options}")
        kept = contents(other)
        broker.alter_stream("s", ring_bytes=7 * RING, retention_bytes=None, max_record_bytes=RING)
        if contents(stream) != kept:
            raise Broken("records are not as they were once it had grown again")
        if options.durability == "memory":
            for n in range(600):
                stream.append(b"%d" % n * 200, partition=0)
            look_back(kept, contents(other))


def judge_partitions(broker: Any, stream: Any, before: dict[int, bytes], finished: bool) -> None:
    """The stream has its new partitions or not, all see the same, and it can get more."""
    for handle in (stream, broker.stream("s")):
        place = handle.append(b"x", key=b"k").partition
        if place not in handle.open_partitions:
            raise Broken(f"partition {place} is none of {handle.open_partitions}")
        if [it.partition for it in handle.offsets() if it.sealed] != list(range(place > 0)):
            raise Broken(f"what is sealed is not as it should be: {handle.offsets()}")
        if finished and not place:
            raise Broken("the stream was repartitioned, but has no new partitions")
    kept = contents(stream)
    if {offset: kept.get(offset) for offset in before} != before:
        raise Broken("records are gone")
    stream.repartition(5)
    if stream.append(b"x", key=b"k").partition not in stream.open_partitions:
        raise Broken("a record is not where it should be")


def judge_files(broker: Any, stream: Any) -> None:
    """It is written, and comes back with the partitions and the records that it had."""
    before = [(it.partition, it.latest, it.sealed, it.behind) for it in stream.offsets()]
    options = stream.options
    directory = DataDirectory(broker.namespace, Disk(FILES))
    writer = StreamWriter(Namespace.of(broker.namespace), directory, WriteSizes())
    writer.look_around()
    writer.end()
    directory.close()
    stream.close()
    lose_memory(broker.namespace)
    bring_back(broker.namespace, FILES)
    with broker.stream("s") as again:
        after = [(it.partition, it.latest, it.sealed, it.behind) for it in again.offsets()]
        if after != before:
            raise Broken(f"{before} came back as {after}")
        if again.options != options:
            raise Broken(f"{options} came back as {again.options}")
        again.append(b"x", key=b"k")
    broker.delete_stream("s")
    shutil.rmtree(FILES)


def judge_deletion(broker: Any, finished: bool) -> None:
    """The stream is there as it was, or its name is free."""
    if finished and broker.has_stream("s"):
        raise Broken("the stream was deleted, but is there")
    stream = broker.ensure_stream("s", partitions=1, ring_bytes=RING)
    stream.append(b"x", partition=0)
