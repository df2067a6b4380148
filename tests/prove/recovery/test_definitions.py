"""What a reboot leaves of exchanges, bindings and schemas."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import psutil
import pytest

import shmq
from tests.prove.recovery.test_autostart import Writers, writers
from tests.prove.recovery.tools import Persist, lose
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually
from tests.support.writer_process import running_writer

__all__ = ["writers"]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def make(broker: shmq.Broker) -> None:
    """Exchanges of three kinds, one behind the other, with durable queues and streams."""
    broker.create_queue("orders", durability="journal", dead_letter=None)
    broker.create_stream("audit", 1, durability="journal")
    broker.create_queue("passing", dead_letter=None)
    topic = broker.create_exchange("events", "topic", alternate="rest")
    broker.create_exchange("rest", "fanout").bind("orders")
    topic.bind("orders", "orders.#")
    topic.bind("audit", "orders.*.paid", kind="stream")
    topic.bind("passing", "#")
    topic.bind("rest", "odd", kind="exchange")
    headers = broker.create_exchange("by-headers", "headers")
    headers.bind("orders", headers={"region": "eu"}, match="any")


def append(broker: shmq.Broker) -> None:
    broker.stream("audit").append_many(
        [b"once", b"only"], partition=0, producer=7, sequence=0, confirm="disk", timeout=PATIENCE
    )


def test_exchanges_and_bindings_are_there_after_a_reboot(persist: Persist, namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        make(broker)
        before = broker.list_exchanges()
        bound = {each.name: broker.exchange(each.name).bindings() for each in before}
    persist.reboot()

    with shmq.connect(namespace) as broker:
        assert [(each.name, each.kind, each.alternate) for each in broker.list_exchanges()] == [
            (each.name, each.kind, each.alternate) for each in before
        ]
        for name, bindings in bound.items():
            there = [each for each in bindings if each.target != "passing"]
            assert broker.exchange(name).bindings() == there
        assert broker.exchange("events").publish(b"1", "orders.eu.paid").delivered == 2
        assert broker.exchange("events").publish(b"2", "nowhere").delivered == 1
        by_headers = broker.exchange("by-headers")
        assert by_headers.publish(b"3", headers={"region": "eu"}).delivered == 1
        assert [message.body for message in broker.queue("orders").peek()] == [b"1", b"2", b"3"]


def test_what_a_call_has_changed_is_on_disk_when_it_returns(
    persist: Persist, namespace: str
) -> None:
    with shmq.connect(namespace) as broker:
        make(broker)
        broker.set_schema("orders", SCHEMA)
        persist.kill()
    lose(namespace)
    persist.begin()

    with shmq.connect(namespace) as broker:
        assert [each.name for each in broker.list_exchanges()] == ["by-headers", "events", "rest"]
        assert [each.schema for each in broker.schemas("orders")] == [SCHEMA]
        broker.delete_exchange("events")
        broker.exchange("rest").unbind("orders")
        persist.kill()
    lose(namespace)
    persist.begin()

    with shmq.connect(namespace) as broker:
        assert [each.name for each in broker.list_exchanges()] == ["by-headers", "rest"]
        assert broker.exchange("rest").bindings() == []
        for name in ("by-headers", "rest"):
            broker.delete_exchange(name)
        persist.kill()
    lose(namespace)
    persist.begin()

    with shmq.connect(namespace) as broker:
        assert broker.list_exchanges() == []
    assert not (persist.directory / "writer.exchanges").exists()


def test_every_version_of_a_schema_is_there_after_a_reboot(
    persist: Persist, namespace: str
) -> None:
    wider = {**SCHEMA, "required": []}
    with shmq.connect(namespace) as broker:
        broker.create_queue("orders", durability="snapshot", dead_letter=None)
        broker.create_stream("audit", 1, durability="journal")
        broker.create_queue("passing", dead_letter=None)
        for name in ("orders", "audit", "passing"):
            broker.set_schema(name, SCHEMA)
        broker.set_schema("orders", wider, "backward")
        before = {name: broker.schemas(name) for name in ("orders", "audit")}
    persist.reboot()

    with shmq.connect(namespace) as broker:
        assert {name: broker.schemas(name) for name in ("orders", "audit")} == before
        with pytest.raises(shmq.SchemaError):
            broker.typed("orders").put({"n": "one"})
        assert broker.set_schema("orders", wider) == 2
        broker.create_queue("passing", dead_letter=None)
        assert broker.schemas("passing") == []
        broker.delete_queue("orders")
        broker.create_queue("orders", durability="snapshot", dead_letter=None)
    persist.reboot()

    with shmq.connect(namespace) as broker:
        assert broker.schemas("orders") == []
        assert len(broker.schemas("audit")) == 1


def test_groups_and_share_groups_go_on_after_a_reboot_without_what_they_have_done(
    persist: Persist, namespace: str
) -> None:
    with shmq.connect(namespace) as broker:
        stream = broker.create_stream("audit", 1, durability="journal")
        stream.append_many([b"a", b"b", b"c"], confirm="disk", timeout=PATIENCE)
        with stream.group("readers").join() as member:
            member.poll(2, PATIENCE)
            member.commit()
        with stream.share("workers") as share:
            share.ack_many(each.receipt for each in share.get_many(2, timeout=PATIENCE))
    persist.reboot()

    with shmq.connect(namespace) as broker:
        stream = broker.stream("audit")
        with stream.group("readers").join() as member:
            assert [each.values() for each in member.poll(5, PATIENCE)] == [[b"c"]]
        with stream.share("workers") as share:
            assert [record.value for record in share.get_many(5, timeout=PATIENCE)] == [b"c"]


def test_with_nothing_started_the_first_to_ask_for_an_exchange_finds_it(writers: Writers) -> None:
    with shmq.connect() as broker:
        broker.create_queue("orders", durability="journal", dead_letter=None)
        broker.create_exchange("events").bind("orders", "key")
        broker.set_schema("orders", {"type": "object"})
    writers.reboot()
    with shmq.connect() as broker:
        assert broker.exchange("events").publish({}, "key").delivered == 1
    writers.reboot()
    with shmq.connect() as broker:
        assert [each.schema for each in broker.schemas("orders")] == [{"type": "object"}]
        broker.delete_exchange("events")
    writers.reboot()
    with shmq.connect() as broker:
        assert broker.list_exchanges() == []


def test_nothing_new_hides_exchanges_that_no_writer_may_bring_back(
    persist: Persist, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_exchange("events")
    persist.end()
    lose(namespace)
    monkeypatch.setenv("SHMQ_DATA_DIR", str(persist.directory))

    with shmq.connect(namespace) as broker:
        assert broker.list_exchanges() == []
        with pytest.raises(shmq.ShmqError, match="no writer runs that would bring them back"):
            broker.create_exchange("other")
        with pytest.raises(shmq.ShmqError, match="shmq persist"):
            broker.exchange("events")
    persist.begin()
    with shmq.connect(namespace) as broker:
        broker.create_exchange("other")
        assert [each.name for each in broker.list_exchanges()] == ["events", "other"]


def test_what_changes_while_no_writer_runs_is_told_and_counts_for_the_next(
    persist: Persist, namespace: str
) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("orders", durability="journal", dead_letter=None)
        broker.create_exchange("gone").bind("orders", "key")
        persist.end()
        with pytest.warns(shmq.DurabilityWarning, match="keeps the exchanges") as told:
            broker.delete_exchange("gone")
        assert told[0].filename == __file__
        with pytest.warns(shmq.DurabilityWarning):
            broker.create_exchange("made")
        persist.begin()
    persist.reboot()

    with shmq.connect(namespace) as broker:
        assert [each.name for each in broker.list_exchanges()] == ["made"]


def define(namespace: str) -> None:
    """A durable queue with an exchange and a schema."""
    with shmq.connect(namespace) as broker:
        broker.create_queue("orders", durability="journal", dead_letter=None)
        broker.create_exchange("events").bind("orders", "key")
        broker.set_schema("orders", SCHEMA)


@pytest.mark.parametrize("file", ["writer.exchanges", "writer.schemas"])
def test_a_damaged_file_is_set_aside_and_named(persist: Persist, namespace: str, file: str) -> None:
    define(namespace)
    persist.end()
    path = persist.directory / file
    raw = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    lose(namespace)
    persist.begin()

    assert f"{path} cannot be read, and is renamed to {file}.aside" in persist.log
    assert path.with_name(f"{file}.aside").read_bytes()[:-1] == raw[:-1]
    with shmq.connect(namespace) as broker:
        assert len(broker.list_exchanges()) == (file != "writer.exchanges")
        assert len(broker.schemas("orders")) == (file != "writer.schemas")


@pytest.mark.parametrize("file", ["writer.exchanges", "writer.schemas"])
def test_what_is_no_file_is_set_aside_and_named(
    persist: Persist, namespace: str, file: str
) -> None:
    define(namespace)
    persist.end()
    path = persist.directory / file
    path.unlink()
    path.mkdir()
    lose(namespace)
    persist.begin()

    assert f"{path} cannot be read: Is a directory" in persist.log
    assert path.with_name(f"{file}.aside").is_dir()
    with shmq.connect(namespace) as broker:
        assert len(broker.list_exchanges()) == (file != "writer.exchanges")
        assert len(broker.schemas("orders")) == (file != "writer.schemas")


def test_exchanges_of_memory_that_was_removed_are_not_those_of_the_new(
    persist: Persist, namespace: str
) -> None:
    with shmq.connect(namespace) as kept:
        kept.create_queue("orders", durability="journal", dead_letter=None)
        kept.create_exchange("before").bind("orders", "key")
        persist.reboot()

        with shmq.connect(namespace) as broker:
            assert [each.name for each in broker.list_exchanges()] == ["before"]
            broker.create_exchange("behind").bind("orders", "key")
            kept.create_exchange("also")
            assert broker.exchange("behind").publish(b"1", "key").delivered == 1
            assert broker.queue("orders").qsize() == 1

    persist.reboot()
    with shmq.connect(namespace) as broker:
        assert {each.name for each in broker.list_exchanges()} == {"before", "behind", "also"}


def test_a_server_whose_memory_is_removed_goes_on_with_what_is_on_disk(
    namespace: str, tmp_path: Path
) -> None:
    with serve(namespace, data_dir=tmp_path / "data") as server, shmq.connect(server.url) as broker:
        broker.create_queue("orders", durability="journal", dead_letter=None)
        broker.create_exchange("before").bind("orders", "key")
        broker.queue("orders").put(b"0", confirm="disk", timeout=PATIENCE)
        lose(namespace)
        server.hears("accepts connections", 2)
        server.hears("queue orders is kept in", 2)

        broker.create_exchange("behind").bind("orders", "key")
        broker.queue("orders").put(b"1", confirm="disk", timeout=PATIENCE)
        assert broker.exchange("behind").publish(b"2", "key").delivered == 1

    with shmq.connect(namespace) as near:
        found = [message.body for message in near.queue("orders").get_many(9)]
        assert found == [b"0", b"1", b"2"]
        assert {each.name for each in near.list_exchanges()} == {"before", "behind"}


def test_a_server_answers_when_it_is_on_disk_and_has_it_after_a_reboot(
    namespace: str, tmp_path: Path
) -> None:
    with serve(namespace, data_dir=tmp_path / "data") as server:
        with shmq.connect(server.url) as broker:
            make(broker)
            broker.set_schema("orders", SCHEMA)
            broker.create_exchange("gone")
            broker.delete_exchange("gone")
            append(broker)
        server.process.suspend()  # it starts no process again
        os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
        for pid in server.children():
            psutil.Process(pid).kill()
        server.process.kill()
        server.process.wait()
        server.leaves_no_process()
        lose(namespace)
        server.start()
        server.ready()

        with shmq.connect(server.url) as broker:
            append(broker)  # as one does whose answer was lost
            assert broker.stream("audit").read(0, 0).values() == [b"once", b"only"]
            names = [each.name for each in broker.list_exchanges()]
            assert names == ["by-headers", "events", "rest"]
            assert broker.exchange("events").publish(b"{}", "orders.eu.paid").delivered == 2
            assert [each.schema for each in broker.schemas("orders")] == [SCHEMA]


def test_a_disk_that_refuses_is_told_and_what_was_defined_is_written_later(namespace: str) -> None:
    with running_writer(namespace) as writer_process, serve(namespace, persist=False) as server:
        file = writer_process.folder / "writer.exchanges"
        with shmq.connect(namespace) as broker, shmq.connect(server.url) as remote:
            broker.create_exchange("before")
            writer_process.fail(errno.ENOSPC)
            with pytest.raises(shmq.NotConfirmed, match=os.strerror(errno.ENOSPC)):
                broker.create_exchange("here")
            with pytest.raises(shmq.ServerError, match="are not known to be on disk"):
                remote.create_exchange("there")
            raw = file.read_bytes()
            writer_process.mend()
            eventually(lambda: b"there" in file.read_bytes(), "it is written once it can be")
            assert b"here" not in raw
            assert b"here" in file.read_bytes()
            assert remote.ensure_exchange("there").name == "there"


def test_without_a_data_directory_nothing_of_it_is_written(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path))
    with shmq.connect(namespace) as broker:
        broker.create_queue("q", dead_letter=None)
        broker.create_exchange("x").bind("q", "key")
        broker.set_schema("q", SCHEMA)
    assert list(tmp_path.iterdir()) == []
