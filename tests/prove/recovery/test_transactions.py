"""Transactions of which the disk has a part only when the memory is lost."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.disk.persistence.recovery import recover
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.transaction_file import TRANSACTIONS, read_noted
from shmq.host.namespace.data_directory import DataDirectory
from tests.prove.recovery.tools import lose
from tests.support.waiting import eventually
from tests.support.writer_process import WriterProcess, running_writer


@pytest.fixture
def writer_process(namespace: str) -> Iterator[WriterProcess]:
    with running_writer(namespace) as writer_process:
        yield writer_process


def come_back(writer_process: WriterProcess) -> shmq.Broker:
    """The machine stops, and what is in the files comes back."""
    writer_process.kill()
    lose(writer_process.namespace)
    directory = DataDirectory(writer_process.namespace, Disk(writer_process.folder))
    directory.ready()
    recover(directory)
    directory.close()
    return shmq.connect(writer_process.namespace)


def bodies(queue: shmq.Queue) -> list[object]:
    return [message.body for message in queue.peek(100)]


def everything(stream: shmq.Stream) -> list[shmq.Record]:
    found: list[shmq.Record] = []
    while len(found) < stream.latest(0):
        found += stream.read(0, len(found))
    return found


def test_what_went_in_is_gone_and_what_came_out_is_there_though_its_disk_failed(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    jobs = broker.create_queue("jobs", durability="journal", dead_letter=None)
    results = broker.create_stream("results", 1, durability="journal")
    jobs.put("work", confirm="disk")
    results.append("before", confirm="disk")
    writer_process.fail(errno.EIO, "streams")

    message = jobs.get()
    with broker.transaction() as transaction:
        transaction.append(results, "done", key="k", headers={"n": 1})
        transaction.append(results, "done too")
        transaction.ack(jobs, message)
    jobs.put("next", confirm="disk")  # behind the acknowledgement

    with come_back(writer_process) as after:
        assert bodies(after.queue("jobs")) == ["next"]
        records = everything(after.stream("results"))
        assert [record.body for record in records] == ["before", "done", "done too"]
        assert (records[1].key, records[1].headers) == (b"k", {"n": 1})
        after.queue("jobs").put("after")  # and it goes on
        after.stream("results").append("after")
        assert after.stream("results").latest(0) == 4
    assert not (writer_process.folder / TRANSACTIONS).exists()


def test_committed_offsets_and_what_came_out_for_them_are_both_there_or_neither(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    orders = broker.create_stream("orders", 1, durability="journal")
    mails = broker.create_queue("mails", durability="journal", dead_letter=None)
    mails.put("first", confirm="disk")
    orders.append("one", confirm="disk")
    member = orders.group("billing", start="earliest").join(timeout=0)
    (records,) = member.poll(timeout=60)
    writer_process.fail(errno.EIO, "streams")  # the group's offsets, too

    with broker.transaction() as transaction:
        transaction.put(mails, "mail for one", group="g")
        transaction.commit(member, {0: records.next_offset})
    mails.put("last", confirm="disk")

    with come_back(writer_process) as after:
        assert bodies(after.queue("mails")) == ["first", "mail for one", "last"]
        again = after.stream("orders").group("billing").join(timeout=0)
        assert again.committed() == {0: 1}
        again.close()


def test_nothing_is_done_twice_where_the_disk_had_all_of_it(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    jobs = broker.create_queue("jobs", durability="journal", dead_letter=None)
    results = broker.create_stream("results", 1, durability="journal")
    for n in range(5):
        jobs.put(n, confirm="disk")
        message = jobs.get()
        with broker.transaction() as transaction:
            transaction.append(results, n)
            transaction.put(jobs, f"next of {n}")
            transaction.ack(jobs, message)
        jobs.get().ack()
    results.append("last", confirm="disk")
    jobs.put("last", confirm="disk")

    with come_back(writer_process) as after:
        values = [record.body for record in everything(after.stream("results"))]
        assert values == [0, 1, 2, 3, 4, "last"]
        assert "last" in bodies(after.queue("jobs"))
        assert not {*bodies(after.queue("jobs"))} & {*range(5)}


def test_what_is_on_disk_as_a_whole_is_noted_no_longer(
    broker: shmq.Broker, writer_process: WriterProcess, namespace: str
) -> None:
    jobs = broker.create_queue("jobs", durability="journal", dead_letter=None)
    results = broker.create_stream("results", 1, durability="journal")
    jobs.put("work", confirm="disk")
    with broker.transaction() as transaction:
        transaction.append(results, "done")
        transaction.ack(jobs, jobs.get())

    disk = Disk(writer_process.folder)
    eventually(lambda: TRANSACTIONS in disk.names(), "it is noted")
    eventually(lambda: read_noted(disk) == [], "all of it is on disk")
    assert list(Path("/dev/shm").glob(f"txn.shmq@{namespace}@*")) == []
    writer_process.stop()
    assert TRANSACTIONS not in disk.names()


def test_what_is_not_on_disk_yet_is_no_input_of_a_transaction(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    jobs = broker.create_queue("jobs", durability="journal", dead_letter=None)
    results = broker.create_stream("results", 1, durability="journal")
    jobs.put("work", confirm="disk")
    jobs.get().ack()
    writer_process.fail(errno.EIO)
    jobs.put("more")
    message = jobs.get()

    with pytest.raises(shmq.NotConfirmed), broker.transaction(timeout=0.1) as transaction:
        transaction.append(results, "done")
        transaction.ack(jobs, message)

    assert results.latest(0) == 0
    assert not message.settled
    message.nack()


def test_a_flipped_bit_in_the_notes_is_damage_and_a_torn_end_is_none(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    jobs = broker.create_queue("jobs", durability="journal", dead_letter=None)
    results = broker.create_stream("results", 1, durability="journal")
    results.append("before", confirm="disk")
    writer_process.fail(errno.EIO, "streams")
    for n in range(3):
        jobs.put(n, confirm="disk")
        with broker.transaction() as transaction:
            transaction.append(results, n)
            transaction.ack(jobs, jobs.get())
    jobs.put("last", confirm="disk")
    writer_process.kill()
    disk = Disk(writer_process.folder)
    path = disk.path(TRANSACTIONS)
    raw = path.read_bytes()
    assert len(read_noted(disk)) == 3

    path.write_bytes(raw[:60])
    assert read_noted(disk) == []
    path.write_bytes(raw[:40] + bytes([raw[40] ^ 1]) + raw[41:])
    with pytest.raises(shmq.DamagedFile, match=TRANSACTIONS):
        read_noted(disk)
    path.write_bytes(raw[:3])
    with pytest.raises(shmq.DamagedFile, match=TRANSACTIONS):
        read_noted(disk)
