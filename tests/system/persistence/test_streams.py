"""Durable streams of shared memory: written by a process of their own, read from ring and files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
from dataclasses import replace
from typing import Any

import pytest

import shmq
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import StreamIdentity
from shmq.disk.storage.paths import (
    STREAMS,
    bases,
    partition_directory,
    segment_file,
    stream_directory,
)
from shmq.disk.storage.stream_meta import Generation, read_card, write_card
from shmq.host.diagnose.leftovers import sweep
from shmq.host.diagnose.streams import examine_files
from shmq.host.namespace import group_files
from shmq.host.namespace.namespace import Namespace
from tests.support.memory_loss import bring_back, lose_memory
from tests.support.waiting import PATIENCE, eventually
from tests.support.writer_process import WriterProcess

RING = 64 << 10
GROUP = {
    "assignment": "range", "session": 30_000_000_000, "lease": 0, "latest": False,
    "max_deliveries": None, "held": 0, "dead_letter": None,
}  # fmt: skip


def create(broker: shmq.Broker, name: str = "s", **options: Any) -> Any:
    given = {"partitions": 1, "ring_bytes": RING, "durability": "journal", "segment_bytes": RING}
    return broker.create_stream(name, **{**given, **options})


def filled(stream: Any, count: int, size: int = 100, partition: int = 0) -> None:
    """Append numbered records, a few at a time, each lot confirmed by the disk."""
    start = stream.latest(partition)
    for first in range(start, start + count, 100):
        lot = [value(n, size) for n in range(first, min(first + 100, start + count))]
        stream.append_many(lot, partition=partition, confirm="disk", timeout=PATIENCE)


def value(number: int, size: int = 100) -> bytes:
    return b"%d ".ljust(size, b".") % number


def everything(stream: Any, start: int = 0, partition: int = 0, **given: Any) -> list[bytes]:
    """All values from ``start`` on."""
    found: list[bytes] = []
    while start < stream.latest(partition):
        records = stream.read(partition, start, **given)
        assert [record.offset for record in records] == list(range(start, start + len(records)))
        found += [bytes(each) for each in records.values()]
        start = records.next_offset
    return found


def files_of(writer_process: WriterProcess, stream: Any, partition: int = 0) -> Disk:
    return Disk(writer_process.folder).under(
        partition_directory(stream.name, stream.identity, partition)
    )


@pytest.mark.prove
def test_a_read_goes_on_from_the_files_into_the_ring(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    filled(stream, 3000)
    assert len(bases(files_of(writer_process, stream).names())) > 3
    wanted = [value(n) for n in range(3000)]
    assert everything(stream) == wanted
    assert everything(stream, 17, limit=7) == wanted[17:]
    assert everything(stream, max_bytes=1) == wanted
    offsets = stream.offsets()[0]
    assert (offsets.earliest, offsets.latest) == (0, 3000)
    assert offsets.bytes > 3000 * 148
    assert stream.earliest(0) == 0


@pytest.mark.prove
def test_a_time_is_found_in_the_files_and_in_the_ring(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    filled(stream, 1500)
    start = 0
    while start < 1500:
        records = stream.read(0, start, 200)
        for record in list(records)[::50]:
            found = stream.at(record.timestamp, 0)
            first = stream.read(0, found, 1)[0]
            assert first.timestamp == record.timestamp
            assert found <= record.offset
            assert not found or stream.read(0, found - 1, 1)[0].timestamp < record.timestamp
        start = records.next_offset
    assert stream.at(0.0, 0) == 0
    assert stream.at(stream.offsets()[0].latest_timestamp + 10, 0) == 1500


@pytest.mark.prove
def test_timestamps_and_what_is_found_by_them_are_the_same_from_the_files(
    namespace: str, broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    start = time.time() - 10_000
    own = [start + n - n % 3 * 100 + (n % 50 == 7) * 20_000 for n in range(1000)]
    for each in own:
        stream.append(b"." * 150, timestamp=each, timeout=PATIENCE)
    filled(stream, 1000)

    def is_as_appended(found: Any) -> None:
        records = [found.read(0, n, 1)[0] for n in range(0, 1000, 9)]
        assert [record.timestamp for record in records] == own[::9]
        assert [found.at(start + n, 0) for n in (0, 3, 4, 7)] == [0, 3, 6, 7]
        assert found.at(start + 9_000, 0) == 7, "from there on it is the clock that counts"
        assert found.at(later, 0) == 2000

    later = stream.offsets()[0].latest_timestamp + 1
    assert later < time.time() + 60
    is_as_appended(stream)
    writer_process.stop()
    stream.close()
    lose_memory(namespace)
    bring_back(namespace, writer_process.folder)
    is_as_appended(broker.stream("s"))


def test_keys_headers_and_codecs_are_the_same_from_the_files(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    stream.append({"n": 1}, key="k", headers={"h": [1, 2]}, confirm="disk", timeout=PATIENCE)
    filled(stream, 1500)
    record = stream.read(0, 0, 1)[0]
    assert (record.body, record.key, record.headers) == ({"n": 1}, b"k", {"h": [1, 2]})
    assert stream.read_raw(0, 0, 1)[1] == 1
    reader = stream.reader(timeout=0.0)
    assert sum(1 for _ in reader) == 1501


def test_nothing_that_is_not_on_disk_gives_way(broker: shmq.Broker) -> None:
    stream = create(broker)
    with pytest.raises(shmq.Full, match="shmq persist"):
        for number in range(5000):
            stream.append(value(number))
    assert stream.earliest(0) == 0
    with pytest.raises(shmq.NotConfirmed, match="shmq persist"):
        create(broker, "t").append(b"x", confirm="disk", timeout=0.01)
    with pytest.raises(shmq.NotConfirmed) as error:
        create(broker, "u").append_many([b"x", b"y"], partition=0, confirm="disk", timeout=0.01)
    (done,) = error.value.appended  # type: ignore[attr-defined]
    assert (done.partition, done.first, done.count) == (0, 0, 2)


def test_a_full_ring_goes_on_once_a_writer_runs(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker, overflow="drop-oldest")
    eventually(lambda: stream.logs[0].writer, "the writer has taken it up")
    writer_process.freeze()
    with pytest.raises(shmq.Full):
        for number in range(5000):
            stream.append(value(number))
    last = stream.latest(0)
    writer_process.thaw()
    stream.append(value(last), block=True, timeout=PATIENCE)
    filled(stream, 500)
    assert everything(stream) == [value(n) for n in range(last + 501)]


@pytest.mark.prove
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batches_are_read_from_the_files_one_by_one(
    broker: shmq.Broker, writer_process: WriterProcess, compression: Any
) -> None:
    stream = create(broker)
    options = {"acks": "disk", "linger": 60, "batch_bytes": 8 << 10, "compression": compression}
    sent = [hashlib.sha256(b"%d" % n).digest() * 4 for n in range(4000)]
    with stream.producer(**options) as producer:
        for each in sent:
            producer.send(each)
    assert stream.logs[0].bounds()[0] > 0, "the ring has let records go"
    assert everything(stream, limit=150) == sent
    assert everything(stream, 77, limit=7, max_bytes=100)[:50] == sent[77:127]
    assert len(stream.reader({0: 3}, timeout=0).poll()[0]) > 0


@pytest.mark.prove
def test_after_a_kill_the_next_writer_goes_on(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    filled(stream, 700)
    writer_process.kill()
    stream.append_many([value(n) for n in range(700, 800)], partition=0)
    writer_process.start()
    filled(stream, 700)
    assert everything(stream) == [value(n) for n in range(1500)]


@pytest.mark.prove
def test_what_the_disk_refuses_is_not_confirmed_until_it_works(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    filled(stream, 10)
    writer_process.fail(errno.ENOSPC)
    with pytest.raises(shmq.NotConfirmed):
        stream.append(value(10), confirm="disk", timeout=PATIENCE)
    writer_process.mend()
    eventually(lambda: stream.logs[0].synced == 11, "it is written again")
    filled(stream, 5)
    assert everything(stream) == [value(n) for n in range(16)]


def test_after_a_reboot_offsets_times_and_groups_go_on(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    stream = create(broker, partitions=2)
    filled(stream, 900)
    filled(stream, 30, partition=1)
    registry = Namespace.of(namespace)
    group = group_files.open_or_make(registry, "s", stream.identity, "g", GROUP)
    group.widen(2)
    group.commit(0, 0, 450)
    identity, last = stream.identity, stream.offsets()[0].latest_timestamp
    writer_process.stop()
    stream.close()
    lose_memory(namespace)
    assert broker.list_streams() == []
    bring_back(namespace, writer_process.folder)

    again = broker.stream("s")
    assert again.identity == identity
    assert again.options.segment_bytes == RING
    assert [each.latest for each in again.offsets()] == [900, 30]
    assert again.offsets()[0].latest_timestamp == last
    assert everything(again) == [value(n) for n in range(900)]
    writer_process.start()
    done = again.append(value(900), partition=0, confirm="disk", timeout=PATIENCE)
    assert done.offset == 900
    assert done.timestamp >= last
    filled(again, 700)
    assert everything(again) == [value(n) for n in range(1601)]
    assert group_files.group_names(registry, identity) == ["g"]
    restored = group_files.look_at(registry, identity, "g")
    assert restored is not None
    assert [restored.committed(0), restored.committed(1)] == [450, None]
    group_files.remove_all(registry, identity)


@pytest.mark.prove
def test_what_a_group_has_done_of_what_no_disk_has_is_done_again(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    stream = create(broker)
    filled(stream, 5)
    stream.group("g")
    stream.share("h")
    for name in "gh":
        group_state = group_files.look_at(Namespace.of(namespace), stream.identity, name)
        assert group_state is not None
        group_state.widen(1)
        # Records of the ring, which went with the memory.
        if name == "g":
            group_state.commit(0, 0, 10)
        else:
            _, lender = group_state.join(1, b"m")
            for lent in group_state.lend(lender, 0, 0, 10, 10):
                group_state.ack(lent[0])
            group_state.leave(lender, False)
        assert ({"g": group_state.committed(0), "h": group_state.lows()[0]})[name] == 10
    writer_process.stop()
    stream.close()
    lose_memory(namespace)
    bring_back(namespace, writer_process.folder)

    again = broker.stream("s")
    again.append_many([value(n) for n in range(5, 12)], partition=0)
    wanted = [value(n) for n in range(5, 12)]
    with again.group("g").join() as member:
        (records,) = member.poll(timeout=PATIENCE)
        assert [bytes(each) for each in records.values()] == wanted
    with again.share("h") as share:
        assert [each.value for each in share.get_many(7, timeout=PATIENCE)] == wanted


@pytest.mark.prove
def test_a_card_that_tells_what_cannot_be_keeps_no_other_stream_away(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    for name in "rst":
        filled(create(broker, name), 10)
    writer_process.stop()
    tell(writer_process, broker.stream("s"), eras=[Generation(0, 1), Generation(1, 1, 1 << 63)])
    groups = {
        "a": {"options": GROUP, "committed": [-1]},
        "b": {"options": {**GROUP, "dead_letter": 5}, "committed": [3]},
        "c": {"options": GROUP, "committed": [3]},
    }
    again = broker.stream("t")
    tell(writer_process, again, groups=groups)
    lose_memory(namespace)
    bring_back(namespace, writer_process.folder)
    assert [one.name for one in broker.list_streams()] == ["r", "t"]
    whole = group_files.look_at(Namespace.of(namespace), again.identity, "c")
    assert whole is not None
    assert whole.committed(0) == 3


def tell(writer_process: WriterProcess, stream: Any, **changed: Any) -> None:
    """Have the stream's card say something else; it is closed."""
    own = Disk(writer_process.folder).under(stream_directory(stream.name, stream.identity))
    card = read_card(own)
    assert card is not None
    header, told = card
    identity = StreamIdentity(header.name, header.queue_id, header.hash_key, dict(header.options))
    write_card(own, identity, replace(told, **changed))
    stream.close()


def test_what_lost_its_memory_while_it_was_written_comes_back_as_far_as_it_was_confirmed(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    stream = create(broker)
    filled(stream, 300)
    stream.append_many([value(n) for n in range(300, 400)], partition=0)
    writer_process.kill()
    stream.close()
    lose_memory(namespace)
    bring_back(namespace, writer_process.folder)
    again = broker.stream("s")
    assert 300 <= again.latest(0) <= 400
    assert everything(again) == [value(n) for n in range(again.latest(0))]


def test_a_deleted_stream_leaves_no_file_with_or_without_a_writer(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    stream = create(broker)
    filled(stream, 300)
    broker.delete_stream("s")
    there = writer_process.folder / STREAMS
    eventually(lambda: not list(there.iterdir()), "its files are gone")
    again = create(broker)
    filled(again, 10)
    assert everything(again) == [value(n) for n in range(10)]
    writer_process.kill()
    broker.delete_stream("s")
    assert list(there.iterdir()) == []
    bring_back(namespace, writer_process.folder)
    assert broker.list_streams() == []


@pytest.mark.prove
def test_old_records_go_by_size_and_readers_are_told(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker, retention_bytes=2 * RING)
    filled(stream, 3000)
    eventually(lambda: stream.earliest(0) > 0, "old segments are gone")
    earliest = stream.earliest(0)
    with pytest.raises(shmq.OffsetOutOfRange) as caught:
        stream.read(0, 0)
    assert caught.value.earliest >= earliest

    def is_all_there() -> bool:
        start = stream.earliest(0)
        with contextlib.suppress(shmq.OffsetOutOfRange):  # more has gone meanwhile
            return everything(stream, start) == [value(n) for n in range(start, 3000)]
        return False

    eventually(is_all_there, "what is kept is read")


@pytest.mark.prove
def test_damage_in_a_file_is_told_and_the_rest_is_read(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    filled(stream, 3000)
    disk = files_of(writer_process, stream)
    there = bases(disk.names())
    path = disk.path(segment_file(there[1]))
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)
    with broker.stream("s") as other:
        with pytest.raises(shmq.DamagedFile, match=segment_file(there[1])):
            everything(other)
        assert everything(other, there[2]) == [value(n) for n in range(there[2], 3000)]


@pytest.mark.prove
def test_the_files_of_all_streams_can_be_examined_while_they_are_written(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    assert examine_files(namespace) == []
    stream = create(broker)
    filled(stream, 3000)
    (one,) = examine_files(namespace)
    assert (one.state, one.problems) == ("sound", [])
    disk = files_of(writer_process, stream)
    damaged, missing = bases(disk.names())[1], bases(disk.names())[3]
    data = bytearray(disk.path(segment_file(damaged)).read_bytes())
    data[20_000] ^= 1
    disk.path(segment_file(damaged)).write_bytes(data)
    disk.unlink(segment_file(missing))
    (one,) = examine_files(namespace)
    assert one.state == "damaged"
    assert [segment_file(damaged) in problem for problem in one.problems] == [True, False]
    assert f"and the next is {bases(disk.names())[3]}" in one.problems[1]


@pytest.mark.prove
def test_a_stream_without_a_writer_is_told(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    stream = create(broker)
    filled(stream, 1)
    assert sweep(namespace, fix=False) == []
    writer_process.kill()
    stream.logs[0].hold(0, 12345)
    told = {one.kind: one.what for one in sweep(namespace, fix=True)}
    assert "shmq persist" in told["disk"]
    assert "which is dead" in told["hold"]
    assert [one.kind for one in sweep(namespace, fix=True)] == ["disk"]
