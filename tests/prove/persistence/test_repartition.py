"""A durable stream that gets more partitions, with deaths and lost memory meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.disk.storage.paths import stream_directory
from shmq.host.diagnose.leftovers import sweep
from shmq.host.diagnose.streams import examine_files
from shmq.host.namespace import group_files
from shmq.host.namespace.namespace import Namespace
from shmq.native import _stream
from tests.support.memory_loss import bring_back, lose_memory
from tests.support.waiting import PATIENCE, eventually
from tests.support.writer_process import WriterProcess

SOON = 0.05
KEYS = [b"key-%d" % n for n in range(8)]


@pytest.fixture
def stream(broker: shmq.Broker) -> Any:
    """A stream of two partitions."""
    return broker.create_stream("s", 2, ring_bytes=64 << 10, durability="journal")


def append_round(stream: Any, number: int, confirm: Any = "disk") -> None:
    """A record of each key, on disk."""
    values = [b"%d" % number] * len(KEYS)
    stream.append_many(values, keys=KEYS, confirm=confirm, timeout=PATIENCE)


def by_key(records: Iterable[shmq.Record]) -> dict[bytes, list[int]]:
    """The numbers of each key, as they came."""
    found: dict[bytes, list[int]] = {key: [] for key in KEYS}
    for record in records:
        found[record.key or b""].append(int(record.value))
    return found


def rounds(stream: Any, count: int) -> None:
    """So many rounds are there, each key's in order."""
    assert by_key(stream.reader(timeout=SOON)) == {key: list(range(count)) for key in KEYS}


def lose_the_machine(writer_process: WriterProcess, stream: Any, *, killed: bool = True) -> None:
    """Its memory is lost; the next writer brings the stream back."""
    if killed:
        writer_process.kill()
    else:
        writer_process.stop()
    stream.close()
    lose_memory(writer_process.namespace)
    bring_back(writer_process.namespace, writer_process.folder)
    writer_process.start()


def test_a_stream_that_lost_its_memory_has_the_partitions_that_it_had(
    broker: shmq.Broker, stream: Any, writer_process: WriterProcess
) -> None:
    append_round(stream, 0)
    stream.repartition(3)
    append_round(stream, 1)
    stream.repartition(4)
    append_round(stream, 2)
    before = stream.offsets()
    lose_the_machine(writer_process, stream)

    again = broker.stream("s")
    assert (again.partitions, again.open_partitions) == (9, range(5, 9))
    assert again.options.partitions == 4
    for found, was in zip(again.offsets(), before, strict=True):
        assert (found.sealed, found.behind) == (was.sealed, was.behind)
        assert (found.earliest, found.latest) == (was.earliest, was.latest)
    with pytest.raises(shmq.PartitionSealed, match="5 to 8"):
        again.append(b"x", partition=2)
    append_round(again, 3)
    rounds(again, 4)
    assert again.repartition(5) == range(9, 14)
    append_round(again, 4)
    rounds(again, 5)


def test_a_group_keeps_the_order_of_each_key_across_the_loss_of_memory(
    broker: shmq.Broker, stream: Any, writer_process: WriterProcess
) -> None:
    append_round(stream, 0)
    stream.group("late", start="latest")
    with stream.group("g").join() as member:
        member.poll(timeout=PATIENCE)
    stream.repartition(3)
    append_round(stream, 1)
    lose_the_machine(writer_process, stream, killed=False)

    again = broker.stream("s")
    append_round(again, 2)
    for name, wanted in (("g", [0, 1, 2]), ("late", [1, 2])):
        with again.group(name).join() as member:
            found = by_key(records_of(member, len(wanted) * len(KEYS)))
        assert found == dict.fromkeys(KEYS, wanted)


def test_a_group_that_saw_partitions_which_no_disk_has_comes_back_without_them(
    broker: shmq.Broker, stream: Any, writer_process: WriterProcess
) -> None:
    append_round(stream, 0)
    with stream.group("g").join() as member:
        records_of(member, len(KEYS))
    group_state = group_files.look_at(Namespace.of(writer_process.namespace), stream.identity, "g")
    assert group_state is not None
    group_state.widen(6)  # as a member does, before the files are of that shape
    group_state.commit(4, 0, 3)
    lose_the_machine(writer_process, stream, killed=False)

    again = broker.stream("s")
    append_round(again, 1)
    with again.group("g").join() as member:
        assert member.assignment == {0, 1}
        assert by_key(records_of(member, len(KEYS))) == {key: [1] for key in KEYS}
        again.repartition(4)
        append_round(again, 2)
        assert by_key(records_of(member, len(KEYS))) == {key: [2] for key in KEYS}


def records_of(member: shmq.Member, count: int) -> list[shmq.Record]:
    """So many records, committed as they come."""
    found: list[shmq.Record] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < until:
        found += [record for records in member.poll(timeout=SOON) for record in records]
        member.commit()
    return found


def test_what_was_repartitioned_without_a_writer_is_written_from_then_on(
    broker: shmq.Broker, stream: Any, writer_process: WriterProcess
) -> None:
    append_round(stream, 0)
    writer_process.kill()
    append_round(stream, 1, "memory")
    stream.repartition(3)
    append_round(stream, 2, "memory")
    stream.repartition(4)
    append_round(stream, 3, "memory")
    writer_process.start()
    append_round(stream, 4)
    lose_the_machine(writer_process, stream)
    rounds(broker.stream("s"), 5)


def test_what_is_written_when_the_writer_is_stopped_is_of_all_partitions(
    broker: shmq.Broker, stream: Any, writer_process: WriterProcess
) -> None:
    for number in range(4):
        append_round(stream, number, "memory")
        stream.repartition(3 + number)
    lose_the_machine(writer_process, stream, killed=False)
    rounds(broker.stream("s"), 4)


def test_new_partitions_of_which_nothing_is_on_disk_may_go_with_the_memory(
    broker: shmq.Broker, stream: Any, writer_process: WriterProcess
) -> None:
    append_round(stream, 0)
    writer_process.kill()
    stream.repartition(3)
    append_round(stream, 1, "memory")
    writer_process.start()
    writer_process.kill()
    writer_process.start()
    lose_the_machine(writer_process, stream)

    again = broker.stream("s")
    assert again.open_partitions in (range(2), range(2, 5))
    found = by_key(again.reader(timeout=SOON))
    assert all(numbers in ([0], [0, 1]) for numbers in found.values())
    append_round(again, 2)
    assert again.repartition(4).start == again.partitions - 4
    append_round(again, 3)


def test_what_a_dead_process_began_is_finished_on_disk_too(
    broker: shmq.Broker, stream: Any, writer_process: WriterProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_round(stream, 0)
    with monkeypatch.context() as patch:
        patch.setattr("shmq.host.namespace.repartition.finish", dies_of_it)
        with pytest.raises(KeyboardInterrupt):
            stream.repartition(3)
    stream.logs[0].seal()
    append_round(stream, 1)
    assert stream.open_partitions == range(2, 5)
    lose_the_machine(writer_process, stream)
    rounds(broker.stream("s"), 2)


def dies_of_it(namespace: Namespace, control: _stream.Control) -> None:
    """As `finish` where a process dies once it is said what the stream is to become."""
    if control.next_shape is not None:
        raise KeyboardInterrupt


def test_its_files_are_sound_and_the_doctor_finds_nothing(
    stream: Any, writer_process: WriterProcess, namespace: str
) -> None:
    append_round(stream, 0)
    stream.repartition(3)
    append_round(stream, 1)
    assert [one.problems for one in examine_files(namespace)] == [[]]
    assert sweep(namespace, fix=False) == []
    assert all(log.writer == stream.logs[0].writer for log in stream.logs)
    writer_process.kill()
    assert [one.kind for one in sweep(namespace, fix=False)] == ["disk"]


def test_files_of_a_partition_that_the_card_does_not_tell_of_are_told(
    stream: Any, writer_process: WriterProcess, namespace: str
) -> None:
    own = writer_process.folder / stream_directory("s", stream.identity)
    append_round(stream, 0)
    card = (own / "stream.dmsq").read_bytes()
    stream.repartition(3)
    append_round(stream, 1)
    writer_process.kill()
    (own / "stream.dmsq").write_bytes(card)
    (one,) = examine_files(namespace)
    assert one.state == "damaged"
    assert [Path(problem.split()[0]).name for problem in one.problems] == ["2", "3", "4"]
    writer_process.start()
    eventually(lambda: not any(each.problems for each in examine_files(namespace)), "it is told")
