"""CloudEvents by HTTP: those that the SDK sends, in binary, structured and batched mode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

import shmq
from shmq.extras.cloudevents import event_of
from tests.support.console import API, Console, Reply

EVENT = {"specversion": "1.0", "id": "17", "source": "/shop", "type": "order.made"}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}


def made(**more: Any) -> CloudEvent:
    return CloudEvent(
        {**EVENT, "datacontenttype": "application/json", "subject": 'Käse "1" 5%', **more},
        {"total": 12},
    )


def post(site: Console, body: bytes, headers: Mapping[str, str | None]) -> Reply:
    return site.ask("POST", f"{API}/queues/events/messages", body, named(headers))


def named(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """The headers, so that their content type stands in place of the client's own."""
    return {name.title(): value for name, value in headers.items()}


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_an_event_of_the_sdk_is_put_once_in_the_mode_in_which_it_came(
    site: Console, shop: shmq.Broker, write: Any
) -> None:
    queue = shop.create_queue("events", dedupe_window=60)
    sent = write(made())
    replies = [post(site, sent.body, sent.headers) for _ in range(2)]
    assert [one.json for one in replies] == [
        {"sequences": [1], "duplicates": 0},
        {"sequences": [1], "duplicates": 1},
    ]
    with queue.get(timeout=0) as message:
        found = event_of(message)
        assert (found.id, found.subject, found.data) == ("17", 'Käse "1" 5%', {"total": 12})
        assert ("ce-id" in message.headers) == (write is to_binary_event)


#: Values that JSON does not have, and why.
NOT_JSON = [
    ("NaN", "NaN is not a number in JSON"),
    ("-Infinity", "-Infinity is not a number in JSON"),
    ("1e400", "1e400 is out of the range"),
    ("1" * 5000, "has 5000 digits"),
    (r'"\ud800"', "lone surrogate"),
    ("[" * 100_000, "nested too deeply"),
]


@pytest.mark.parametrize("mode", ["binary", "structured", "batched"])
@pytest.mark.parametrize(("data", "reason"), NOT_JSON, ids=[why for _, why in NOT_JSON])
def test_an_event_that_is_not_json_is_refused(
    site: Console, shop: shmq.Broker, data: str, reason: str, mode: str
) -> None:
    queue = shop.create_queue("events")
    structured = json.dumps(EVENT)[:-1] + f', "data": {data}}}'
    body, headers = {
        "binary": (
            data,
            {"Content-Type": "application/json", **{f"ce-{k}": EVENT[k] for k in EVENT}},
        ),
        "structured": (structured, {"Content-Type": "application/cloudevents+json"}),
        "batched": (f"[{structured}]", BATCH),
    }[mode]
    reply = post(site, body.encode(), headers)
    assert (reply.status, reply.code) == (400, "invalid"), reply
    assert reason in reply.json["detail"]
    assert queue.empty()


def test_a_batch_of_events_is_put_in_order(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("events")
    events = [{**EVENT, "id": str(number), "data": number} for number in range(3)]
    assert post(site, json.dumps(events).encode(), BATCH).json["sequences"] == [1, 2, 3]
    assert [event_of(one).data for one in queue.get_many(9, 0)] == [0, 1, 2]
    key = {"Idempotency-Key": "a"}
    (reply,) = [post(site, json.dumps(events[:1]).encode(), {**BATCH, **key})]
    assert (reply.status, "dedupe_window" in reply.json["detail"]) == (400, True)


def test_the_data_of_an_event_may_be_of_any_type(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("events")
    headers: dict[str, str | None] = {f"ce-{name}": value for name, value in EVENT.items()}
    assert post(site, b"\xff", {**headers, "Content-Type": "image/png"}).status == 201
    assert post(site, b"\xff", {**headers, "Content-Type": None}).status == 201
    found = [event_of(one) for one in queue.get_many(9, 0)]
    assert [(one.data, one.datacontenttype) for one in found] == [
        (b"\xff", "image/png"),
        (b"\xff", None),
    ]


def test_an_event_is_appended_by_its_partition_key(site: Console, shop: shmq.Broker) -> None:
    stream = shop.create_stream("log", partitions=1)
    sent = to_binary_event(made(partitionkey="tea"))
    assert (
        site.ask("POST", f"{API}/streams/log/records", sent.body, named(sent.headers)).status == 201
    )
    (record,) = stream.read(0, 0, 9)
    assert (record.key, event_of(record).data) == (b"tea", {"total": 12})


@pytest.mark.parametrize(
    ("headers", "body", "told"),
    [
        ({"ce-id": "1", "Content-Type": "application/json"}, b"{}", "ce-specversion"),
        ({"ce-specversion": "1.0", "ce-id": "1"}, b"", "no source"),
        ({"ce-specversion": "%ff", "ce-id": "1"}, b"", "utf-8"),
        ({"Content-Type": "application/cloudevents+json"}, b"{", "JSON"),
        ({"Content-Type": "application/cloudevents+json"}, b"[]", "map"),
        ({"Content-Type": "application/cloudevents+json"}, b'{"specversion":"1.0"}', "no id"),
        (BATCH, b"{}", "array"),
        (BATCH, b"[]", "0 messages"),
        (BATCH, b"[1]", "map"),
    ],
    ids=str,
)
def test_what_is_no_event_is_refused_and_nothing_is_put(
    site: Console, shop: shmq.Broker, headers: dict[str, str | None], body: bytes, told: str
) -> None:
    queue = shop.create_queue("events")
    reply = post(site, body, {"Content-Type": None, **headers})
    assert (reply.status, reply.code) == (400, "invalid")
    assert told in reply.json["detail"]
    assert queue.empty()
