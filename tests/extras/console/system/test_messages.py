"""Messages by HTTP: peek, bodies, put, lease and settle."""

from __future__ import annotations

import base64
import datetime as dt
import json
import threading

import pytest

import shmq
from tests.support.console import API, Console, Reply, console
from tests.support.waiting import PATIENCE, eventually


def test_bodies_are_shown_as_json_text_or_base64(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("mixed")
    at = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    for body in ({"a": [1, None]}, "Käse", b"\xff\x00", {"at": at}):
        queue.put(body)
    found = site.api("GET", "/queues/mixed/messages").json["items"]
    assert [(one["encoding"], one["body"]) for one in found] == [
        ("json", {"a": [1, None]}),
        ("text", "Käse"),
        ("base64", base64.b64encode(b"\xff\x00").decode()),
        ("json", {"at": "2026-03-01T12:00:00Z"}),
    ]
    assert queue.qsize() == 4


def test_a_long_body_is_cut_in_the_list_and_given_whole_by_itself(
    site: Console, shop: shmq.Broker
) -> None:
    body = "ä" * 5000
    sequence = shop.create_queue("long").put(body).sequence
    (found,) = site.api("GET", "/queues/long/messages").json["items"]
    assert (found["cut"], found["size"], found["body"]) == (True, 10_000, "ä" * 2048)
    whole = site.api("GET", f"/queues/long/messages/{sequence}/body")
    assert whole.content == body.encode()
    assert whole.headers["content-type"] == "application/octet-stream"
    assert "attachment" in whole.headers["content-disposition"]
    assert site.api("GET", "/queues/long/messages/99/body").code == "not-found"


def test_a_message_is_put_with_its_properties(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("inbox")
    reply = site.api(
        "POST",
        "/queues/inbox/messages",
        {"body": {"x": 1}, "headers": {"h": "v"}, "priority": 2, "group": "g"},
    )
    assert (reply.status, reply.json) == (201, {"sequences": [1], "duplicates": 0})
    with queue.get() as message:
        assert message.body == {"x": 1}
        assert (message.headers, message.priority, message.group) == ({"h": "v"}, 2, "g")


def test_lines_of_ndjson_are_put_in_order(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("lines")
    lines = "\n".join(json.dumps({"body": str(n), "encoding": "text"}) for n in range(5))
    reply = site.ask(
        "POST",
        f"{API}/queues/lines/messages",
        lines.encode(),
        {"Content-Type": "application/x-ndjson"},
    )
    assert reply.json["sequences"] == [1, 2, 3, 4, 5]
    assert [one.body for one in queue.peek()] == ["0", "1", "2", "3", "4"]


def test_an_idempotency_key_makes_a_second_put_a_duplicate(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("once", dedupe_window=60.0)
    path = f"{API}/queues/once/messages"
    replies = [site.ask("POST", path, {"body": 1}, {"Idempotency-Key": "k"}) for _ in range(2)]
    assert [one.json for one in replies] == [
        {"sequences": [1], "duplicates": 0},
        {"sequences": [1], "duplicates": 1},
    ]


def test_a_full_queue_is_429_with_the_time_to_wait_and_what_was_taken(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("tiny", capacity=2)
    lines = b'{"body":1}\n{"body":2}\n{"body":3}\n'
    reply = site.ask(
        "POST", f"{API}/queues/tiny/messages", lines, {"Content-Type": "application/x-ndjson"}
    )
    assert (reply.status, reply.code) == (429, "full")
    assert int(reply.headers["retry-after"]) > 0
    assert (reply.json["taken"], reply.json["sequences"]) == (2, [1, 2])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"body": 1, "unknown": 2},
        {"body": 1, "encoding": "text"},
        {"body": "*", "encoding": "base64"},
        {"body": 1, "priority": 99},
        {"body": 1, "ttl": "soon"},
        {"body": 1, "codec": "nothing"},
    ],
    ids=str,
)
def test_a_wrong_message_is_refused_and_nothing_is_put(
    site: Console, shop: shmq.Broker, body: object
) -> None:
    queue = shop.create_queue("strict")
    reply = site.api("POST", "/queues/strict/messages", body)
    assert (reply.status, reply.code) == (400, "invalid")
    assert queue.qsize() == 0


def test_bytes_that_are_no_json_are_refused(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("strict")
    for content in (b"", b"{", b"\xff", b"[" * 100_000):
        reply = site.ask(
            "POST", f"{API}/queues/strict/messages", content, {"Content-Type": "application/json"}
        )
        assert reply.status == 400, content[:20]


def test_a_leased_message_is_settled_by_its_receipt_once(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("tasks")
    queue.put_many(["a", "b", "c", "d"])
    leased = site.api("POST", "/queues/tasks/lease", {"max": 4}).json
    receipts = [one["receipt"] for one in leased["items"]]
    assert queue.stats().in_flight == 4
    for receipt, how in zip(receipts, ("ack", "nack", "reject", "extend"), strict=True):
        more = {"seconds": 100} if how == "extend" else {"delay": 0} if how == "nack" else {}
        done = site.api("POST", "/settle", {"receipts": [receipt], "how": how, **more}).json
        assert done == {"settled": 1, "refused": []}
    stats = queue.stats()
    assert (stats.acked, stats.nacked, stats.in_flight, stats.dead_lettered) == (1, 1, 1, 1)
    again = site.api("POST", "/settle", {"receipts": receipts[:1]}).json
    assert (again["settled"], again["refused"][0]["code"]) == (0, "already-settled")
    assert "was settled by ack() 0." in again["refused"][0]["detail"]


def test_what_a_session_holds_returns_when_it_ends(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("tasks")
    queue.put_many(["a", "b"])
    first = site.api("POST", "/queues/tasks/lease", {"max": 1}).json
    second = site.api("POST", "/queues/tasks/lease", {"session": first["session"]}).json
    assert second["session"] == first["session"]
    ended = site.api("POST", "/sessions/end", {"session": first["session"]})
    assert ended.json == {"returned": 2}
    assert queue.qsize() == 2


def test_a_session_that_is_ended_ends_the_lease_that_waits(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("tasks").put("a")
    quiet = shop.create_queue("quiet")
    session = site.api("POST", "/queues/tasks/lease", {}).json["session"]
    told: list[Reply] = []
    waiting = threading.Thread(
        target=lambda: told.append(
            site.api("POST", "/queues/quiet/lease", {"wait": 20, "session": session})
        )
    )
    waiting.start()
    eventually(lambda: quiet.stats().waiting_get > 0, "the lease waits")
    assert site.api("POST", "/sessions/end", {"session": session}).json == {"returned": 1}
    waiting.join(PATIENCE)
    assert [(one.status, one.code) for one in told] == [(409, "lease-expired")]


def test_a_lease_waits_for_a_message_and_an_empty_queue_gives_none(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("quiet")
    reply = site.api("POST", "/queues/quiet/lease", {"wait": 0.05})
    assert (reply.status, reply.json["items"]) == (200, [])


@pytest.mark.prove
def test_messages_return_when_the_console_ends(place: str, shop: shmq.Broker) -> None:
    queue = shop.create_queue("held")
    queue.put("a")
    with console(place) as other:
        assert other.api("POST", "/queues/held/lease", {}).json["items"]
        assert queue.qsize() == 0
    assert queue.qsize() == 1
