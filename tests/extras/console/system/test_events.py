"""Event streams of a running console: a snapshot, then differences, and how they end."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

import shmq
from tests.support.console import API, Console, console
from tests.support.waiting import PATIENCE

READER = "reader" + "r" * 40
OTHER = "other" + "o" * 40


class Event(NamedTuple):
    """One event."""

    kind: str
    id: str
    data: Any


class Stream:
    """A client that reads one event stream."""

    def __init__(self, site: Console, query: str = "", **headers: str) -> None:
        where = urlsplit(site.url)
        assert where.hostname is not None
        assert where.port is not None
        self._socket = socket.create_connection((where.hostname, where.port), PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"GET {where.path}{API}/events{query} HTTP/1.1", f"Host: {where.netloc}"]
        lines += [f"{name}: {value}" for name, value in named.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value

    def _lines(self) -> Iterator[str]:
        """The lines of the stream, out of its chunks."""
        text = b""
        while size := int(self._file.readline() or b"0", 16):
            text += self._file.read(size)
            self._file.readline()
            *lines, text = text.split(b"\n")
            yield from (line.decode() for line in lines)

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for line in self._lines():
            if not line:
                if "event" in fields:
                    data = json.loads(fields["data"])
                    yield Event(fields["event"], fields.get("id", ""), data)
                fields = {}
            else:
                name, _, value = line.partition(": ")
                fields[name] = value

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextlib.contextmanager
def events(site: Console, query: str = "", **headers: str) -> Iterator[Stream]:
    stream = Stream(site, query, **headers)
    try:
        yield stream
    finally:
        stream.close()


def test_a_stream_begins_with_a_snapshot_and_goes_on_with_differences(
    site: Console, shop: shmq.Broker
) -> None:
    orders = shop.create_queue("orders", dead_letter=None)
    shop.create_stream("log", 2)
    with events(site) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        found = iter(stream)
        first = next(found)
        assert first.kind == "snapshot"
        state = first.data.get("queues", {})
        for event in found:
            assert event.kind == "changes"
            state |= event.data.get("queues", {})
            if "orders" in state:
                break
        assert state["orders"]["depth"] == 0
        assert "capacity" in state["orders"]
        orders.put("x")
        for event in found:
            changed = event.data.get("queues", {}).get("orders", {})
            if "depth" in changed:
                break
        assert changed["depth"] == 1
        assert "capacity" not in changed
        shop.delete_queue("orders")
        gone = next(one for one in found if "orders" in one.data.get("queues", {}))
        assert gone.data["queues"]["orders"] is None


def test_a_stream_that_was_lost_goes_on_where_it_ended(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("kept", dead_letter=None)
    with events(site, "?queues=kept") as stream:
        last = next(one for one in stream if "kept" in one.data.get("queues", {}))
    queue.put("x")
    with events(site, "?queues=kept", last_event_id=last.id) as stream:
        found = iter(stream)
        first = next(found)
        assert first.kind == "changes"
        changed = first.data.get("queues", {}).get("kept", {})
        while "depth" not in changed:
            changed = next(found).data.get("queues", {}).get("kept", {})
        assert changed["depth"] == 1
    for unknown in ("nothing", f"{last.id}9999", "0-1"):
        with events(site, "?queues=kept", last_event_id=unknown) as stream:
            assert next(iter(stream)).kind == "snapshot"
    with events(site, "?queues=other", last_event_id=last.id) as stream:
        assert next(iter(stream)).kind == "snapshot"


def test_a_pattern_leaves_out_other_queues(site: Console, shop: shmq.Broker) -> None:
    for name in ("a.one", "a.two", "b.one"):
        shop.create_queue(name, dead_letter=None)
    with events(site, f"?queues={quote('a.*')}") as stream:
        seen: set[str] = set()
        for event in stream:
            seen |= event.data.get("queues", {}).keys()
            if len(seen) == 2:
                break
        assert seen == {"a.one", "a.two"}


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [("?queue=x", 400, "invalid"), (f"?queues={'x' * 300}", 400, "invalid")],
)
def test_a_wrong_parameter_is_refused(site: Console, query: str, status: int, code: str) -> None:
    reply = site.ask("GET", f"{API}/events{query}")
    assert (reply.status, reply.code) == (status, code)


def test_head_and_other_methods_end_at_once(site: Console) -> None:
    assert site.ask("HEAD", f"{API}/events").status == 200
    reply = site.ask("POST", f"{API}/events", {})
    assert (reply.status, reply.headers["allow"]) == (405, "GET")


def test_a_caller_sees_only_what_its_token_allows(place: str, shop: shmq.Broker) -> None:
    shop.create_queue("orders", dead_letter=None)
    shop.create_queue("secret", dead_letter=None)
    tokens = {READER: {"consume": ["orders*"]}, OTHER: {"admin": ["*"]}}
    with console(place, tokens=tokens) as site:
        assert site.api("GET", "/events").status == 401
        with (
            events(site, Authorization=f"Bearer {READER}") as one,
            events(site, Authorization=f"Bearer {OTHER}") as two,
        ):
            first, all_of_it = next(iter(one)), next(iter(two))
            assert set(first.data["queues"]) == {"orders"}
            assert set(all_of_it.data["queues"]) == {"orders", "secret"}
            foreign = Stream(site, Authorization=f"Bearer {READER}", last_event_id=all_of_it.id)
            assert next(iter(foreign)).kind == "snapshot"
            foreign.close()


def test_a_caller_sees_the_groups_that_it_may_look_at(place: str, shop: shmq.Broker) -> None:
    stream = shop.create_stream("clicks", 1)
    stream.group("billing")
    stream.group("audit")
    tokens = {READER: {"consume": ["clicks/billing"]}, OTHER: {"consume": ["clicks"]}}
    with console(place, tokens=tokens) as site:
        for token, groups in ((READER, {"billing"}), (OTHER, {"billing", "audit"})):
            with events(site, Authorization=f"Bearer {token}") as one:
                assert set(next(iter(one)).data["streams"]["clicks"]["groups"]) == groups


def test_streams_end_with_the_console(place: str) -> None:
    with console(place) as site, events(site) as stream:
        found = iter(stream)
        assert next(found).kind == "snapshot"
        assert site.stop() == 0
        assert all(event.kind == "changes" for event in found)


@pytest.mark.prove
def test_two_hundred_readers_are_served_and_no_more(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("busy", dead_letter=None)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(events(site)) for _ in range(200)]
        reply = site.api("GET", "/events")
        assert (reply.status, reply.code) == (503, "too-many")
        seen: list[int] = []

        def read(stream: Stream) -> None:
            for event in stream:
                if event.data.get("queues", {}).get("busy", {}).get("depth"):
                    seen.append(1)
                    return

        threads = [threading.Thread(target=read, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        queue.put("x")
        for thread in threads:
            thread.join(PATIENCE)
        assert len(seen) == 200
