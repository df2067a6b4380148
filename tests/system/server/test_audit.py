"""The audit events of a real server: changes, refused rights, failed logins."""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.protocol.opcodes import Status, Type
from tests.support.peer import Peer, name_of
from tests.support.waiting import eventually
from tests.system.server.conftest import Serve

ALL = "*" * 40
READER = "r" * 40
TOKENS = {ALL: {"produce": ["*"], "consume": ["*"], "admin": ["*"]}, READER: {"consume": ["shop*"]}}


def _events(path: Path) -> list[dict[str, Any]]:
    text = path.read_text() if path.exists() else ""
    whole, _, _ = text.rpartition("\n")  # what follows is being written
    return [json.loads(line) for line in whole.splitlines()]


def _wait(path: Path, event: str, count: int = 1) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]]:
        return [each for each in _events(path) if each["event"] == event]

    eventually(lambda: len(found()) >= count, f"{count} times {event}")
    return found()


def test_each_change_is_one_event_with_its_answer(served: Serve, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = served(tokens=TOKENS, audit_log=str(path))
    with shmq.connect(server.url, token=ALL) as broker:
        with broker.create_queue("shop") as queue:
            queue.put(b"1")
            queue.purge()
            queue.redrive()
        broker.set_schema("shop", {"type": "object"})
        with broker.create_stream("clicks", partitions=1) as stream:
            stream.repartition(2)
            stream.group("readers").reset("earliest")
            stream.delete_group("readers")
        with broker.create_exchange("events", "fanout") as exchange:
            exchange.bind("shop")
            exchange.unbind("shop")
        broker.delete_exchange("events")
        broker.delete_stream("clicks")
        broker.delete_queue("shop")
    _wait(path, "queue.delete")
    found = _events(path)
    resets = [each for each in found if each["event"] == "group.reset"]
    assert len(resets) == 3  # one of each partition
    # Two of them may be equal, by the millisecond of their times.
    found = [each for each in found if not any(each is other for other in resets[1:])]
    assert [each["event"] for each in found] == [
        "queue.create", "queue.purge", "queue.redrive", "schema.set", "stream.create",
        "stream.repartition", "group.reset", "group.delete", "exchange.create", "exchange.bind",
        "exchange.unbind", "exchange.delete", "stream.delete", "queue.delete",
    ]  # fmt: skip
    assert {(each["outcome"], each["who"], each["via"]) for each in found} == {
        ("ok", "token 0", "tcp")
    }
    assert found[1]["messages"] == 1
    assert found[3]["version"] == 1
    assert found[7]["group"] == "readers"
    assert (found[9]["target"], found[9]["changed"]) == ("shop", True)
    assert all(each["peer"].startswith("127.0.0.1:") for each in found)


@pytest.mark.prove
def test_refused_rights_are_events_whoever_refuses_them(served: Serve, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = served(tokens=TOKENS, audit_log=str(path), log_format="json")
    with shmq.connect(server.url, token=ALL) as broker:
        broker.create_queue("shop").close()
    with Peer(server) as peer:
        peer.let_in(READER)
        produce = struct.pack("!BB", 0, 0) + bytes(8)
        refused = peer.status(Type.PURGE, name_of("shop"))
        assert refused == Status.FORBIDDEN
        assert peer.status(Type.DELETE, name_of("other")) == Status.NO_QUEUE
        consume = struct.pack("!IIB", 1, 0, 0)
        assert peer.status(Type.CONSUME, name_of("other") + consume) == Status.NO_QUEUE
        peer.status(Type.PRODUCE_BATCH, name_of("shop") + produce)
        assert peer.status(Type.STREAM_DELETE, name_of("clicks")) == Status.NO_QUEUE
        found = _wait(path, "right.refused", 4)
        for _ in range(50):
            peer.status(Type.CONSUME, name_of("other") + consume)
    by_operation = {each["operation"]: each for each in found}
    assert by_operation["queue.purge"]["outcome"] == "forbidden"
    assert by_operation["delete"]["outcome"] == "no_queue"
    assert by_operation["consume"]["name"] == "other"
    assert {each["who"] for each in found} == {"token 1"}
    eventually(lambda: any("left_out" in e for e in _events(path)), "the rest is counted")
    assert len(_wait(path, "right.refused")) < 30
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert {"time", "level", "logger", "process", "message"} <= lines[0].keys()
    assert [e for e in lines if e.get("event") == "right.refused"]


def test_a_failed_login_is_answered_late_and_holds_back_nobody(
    served: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "audit.jsonl"
    server = served(tokens=TOKENS, audit_log=str(path))
    for _ in range(3):
        with Peer(server) as peer:
            assert peer.hello("wrong" * 10).status == Status.UNAUTHORIZED
    with Peer(server) as slow, Peer(server) as good:
        slow.socket.setblocking(True)
        began = time.monotonic()
        slow.post(Type.HELLO, b"\x82\xa6client\xa1x\xa5token\xa3bad")
        good.let_in(ALL)
        good.names()
        slow.socket.setblocking(False)
        try:
            slow.socket.recv(1, socket.MSG_PEEK)
            answered_first = time.monotonic() - began < 0.5
        except BlockingIOError:
            answered_first = False
        assert not answered_first
        slow.socket.setblocking(True)
        assert slow.receive().status == Status.UNAUTHORIZED
    found = _wait(path, "login.failed", 4)
    assert [each["failures"] for each in found] == [1, 2, 3, 4]
    assert {each["source"] for each in found} == {"127.0.0.1"}
    assert "bad" not in path.read_text() and "wrong" not in path.read_text()
