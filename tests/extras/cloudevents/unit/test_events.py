"""CloudEvents as messages and records, beside those of the SDK."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_binary_event,
    from_structured_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent as SdkEvent

import shmq
from shmq.extras.cloudevents import (
    CloudEvent,
    Mode,
    append_event,
    aput_event,
    encode_event,
    event_of,
    put_event,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVENT = {"specversion": "1.0", "id": "17", "source": "/shop", "type": "order.made"}


@pytest.fixture
def queue(broker: shmq.Broker) -> Iterator[shmq.Queue]:
    with broker.create_queue("events") as made:
        yield made


def read(queue: shmq.Queue) -> CloudEvent:
    with queue.get(timeout=0) as message:
        return event_of(message)


def test_binary_mode_has_the_attributes_in_headers_and_the_data_as_the_body(
    queue: shmq.Queue,
) -> None:
    put_event(
        queue,
        CloudEvent(
            **{name: value for name, value in EVENT.items() if name != "specversion"},
            time=NOON,
            subject="tea",
            datacontenttype="application/json",
            data={"total": 12},
            extensions={"urgent": True, "shard": 3},
        ),
    )
    with queue.get(timeout=0) as message:
        assert message.body == {"total": 12}
        assert message.headers == {
            "ce-specversion": "1.0",
            "ce-id": "17",
            "ce-source": "/shop",
            "ce-type": "order.made",
            "ce-time": "2026-01-31T12:00:00Z",
            "ce-subject": "tea",
            "ce-urgent": "true",
            "ce-shard": "3",
            "content-type": "application/json",
        }


def test_structured_mode_has_the_whole_event_as_json(queue: shmq.Queue) -> None:
    put_event(
        queue,
        {**EVENT, "time": "2026-01-31T12:00:00Z", "data": b"\xff", "shard": 3},
        mode="structured",
    )
    with queue.get(timeout=0) as message:
        assert message.headers == {"content-type": "application/cloudevents+json"}
        assert json.loads(bytes(message.view)) == {
            **EVENT,
            "time": "2026-01-31T12:00:00Z",
            "shard": 3,
            "data_base64": "/w==",
        }
        assert event_of(message).extensions == {"shard": 3}


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    ("media", "data", "read_as"),
    [
        (None, None, None),
        (None, {"a": [1, None]}, {"a": [1, None]}),
        (None, "tea", "tea"),
        (None, b"\xff\x00", b"\xff\x00"),
        ("application/json", {"a": 1}, {"a": 1}),
        ("application/json", "tea", "tea"),
        ("application/json", b'{"a":1}', {"a": 1}),
        ("application/vnd.shop+json; charset=utf-8", [1, 2], [1, 2]),
        ("text/plain", "Käse", "Käse"),
        ("text/plain", "Käse".encode(), "Käse"),
        ("text/xml", b"<a/>", "<a/>"),
        ("application/octet-stream", b"[1]", b"[1]"),
    ],
)
def test_the_data_comes_back_as_its_media_type_says(
    queue: shmq.Queue, mode: Mode, media: str | None, data: Any, read_as: Any
) -> None:
    put_event(queue, {**EVENT, "datacontenttype": media, "data": data}, mode=mode)
    found = read(queue)
    assert (found.datacontenttype, found.data) == (media, read_as)


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_an_event_of_the_sdk_comes_back_with_its_attributes(queue: shmq.Queue, mode: Mode) -> None:
    put_event(queue, SdkEvent({**EVENT, "time": NOON, "flow": "a b"}, {"total": 12}), mode=mode)
    assert read(queue) == CloudEvent(
        id="17",
        source="/shop",
        type="order.made",
        time=NOON,
        data={"total": 12},
        extensions={"flow": "a b"},
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_event_of_the_old_sdk_is_taken(queue: shmq.Queue) -> None:
    from cloudevents.v1.http import CloudEvent as OldEvent

    put_event(queue, OldEvent(dict(EVENT), {"total": 12}))
    assert read(queue).data == {"total": 12}


def test_the_sdk_reads_what_was_put(queue: shmq.Queue) -> None:
    event = {**EVENT, "datacontenttype": "application/json", "data": {"total": 12}}
    for mode, read_event in (("binary", from_binary_event), ("structured", from_structured_event)):
        put_event(queue, event, mode=mode)  # type: ignore[arg-type]
        with queue.get(timeout=0) as message:
            found = read_event(HTTPMessage(dict(message.headers), bytes(message.view)))
        assert (found.get_id(), found.get_source()) == ("17", "/shop")
        assert found.get_data() == {"total": 12}


def test_what_the_sdk_wrote_is_read(queue: shmq.Queue) -> None:
    written = to_structured_event(SdkEvent({**EVENT, "time": NOON}, {"total": 12}))
    queue.put(written.body, headers=written.headers)
    assert read(queue).data == {"total": 12}


def test_the_source_and_the_id_are_the_dedupe_id_of_a_queue_that_has_a_window(
    broker: shmq.Broker,
) -> None:
    with broker.create_queue("once", dedupe_window=60) as queue:
        assert not put_event(queue, EVENT).duplicate
        assert put_event(queue, EVENT, mode="structured").duplicate
        assert not put_event(queue, {**EVENT, "source": "/other"}).duplicate
        assert not put_event(queue, EVENT, dedupe_id="mine").duplicate
    with broker.create_queue("often") as queue:
        put_event(queue, EVENT)
        assert "dedupe" not in queue.get(timeout=0).properties


def test_the_properties_of_a_put_go_with_an_event(queue: shmq.Queue) -> None:
    put_event(queue, EVENT, priority=2, group="g", headers={"trace": "t"})
    with queue.get(timeout=0) as message:
        assert (message.priority, message.group, message.headers["trace"]) == (2, "g", "t")
    for name in ("ce-id", "CE-Other", "Content-Type"):
        with pytest.raises(shmq.InvalidOption, match="is the event's"):
            put_event(queue, EVENT, headers={name: "x"})


async def put_and_read(queue: shmq.Queue) -> CloudEvent:
    await aput_event(queue, EVENT, priority=1)
    return event_of(await queue.aget(0))


def test_an_event_is_put_by_asyncio(queue: shmq.Queue) -> None:
    import asyncio

    assert asyncio.run(put_and_read(queue)).id == "17"


def test_an_event_is_filtered_by_its_attributes(queue: shmq.Queue) -> None:
    put_event(queue, EVENT)
    put_event(queue, {**EVENT, "type": "order.paid"})
    with queue.get(timeout=0, where="header.ce-type = 'order.paid'") as message:
        assert event_of(message).type == "order.paid"


def test_an_event_is_appended_by_its_partition_key_and_read(broker: shmq.Broker) -> None:
    with broker.create_stream("log", partitions=1) as stream:
        append_event(stream, {**EVENT, "partitionkey": "tea", "data": {"total": 12}})
        append_event(stream, {**EVENT, "partitionkey": "tea"}, key="other", mode="structured")
        first, second = stream.read(0, 0, 10)
        assert (first.key, second.key) == (b"tea", b"other")
        assert event_of(first).data == {"total": 12}
        assert event_of(second).extensions == {"partitionkey": "tea"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": None}, "has no id"),
        ({"source": None, "type": None}, "has no source and no type"),
        ({"id": ""}, "id is empty"),
        ({"source": "a b"}, "source='a b'"),
        ({"specversion": "0.3"}, "specversion='0.3'"),
        ({"time": "noon"}, "time='noon'"),
        ({"time": "2026-02-31T12:00:00Z"}, "RFC 3339"),
        ({"time": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is refused
        ({"dataschema": "schema"}, "absolute URI"),
        ({"datacontenttype": "json"}, "media type"),
        ({"subject": ""}, "subject is empty"),
        ({"flow_id": "x"}, "'flow_id'"),
        ({"Flow": "x"}, "'Flow'"),
        ({"flow": "a\nb"}, r"'\\n'"),
        ({"flow": 1 << 31}, "32 bits"),
        ({"data": 1, "data_base64": "AA=="}, "both"),
        ({"data_base64": "*"}, "Base64"),
        ({"datacontenttype": "text/xml", "data": {"a": 1}}, "datacontenttype 'text/xml'"),
    ],
    ids=str,
)
def test_an_event_that_the_specification_forbids_is_refused_and_not_put(
    queue: shmq.Queue, change: dict[str, Any], told: str
) -> None:
    for mode in ("binary", "structured"):
        with pytest.raises(shmq.InvalidOption, match=told):
            put_event(queue, {**EVENT, **change}, mode=mode)
    assert queue.empty()


@pytest.mark.parametrize("change", [{"id": 17}, {"flow": 1.5}, {"flow": {}}, {"time": 5}, {3: 4}])
def test_a_type_that_no_attribute_has_is_a_type_error(change: dict[Any, Any]) -> None:
    with pytest.raises(TypeError):
        encode_event({**EVENT, **change})


def test_what_is_no_event_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not int"):
        encode_event(5)


def test_an_extension_may_not_stand_for_an_attribute_of_every_event() -> None:
    with pytest.raises(shmq.InvalidOption, match="'source'"):
        CloudEvent(id="1", source="/", type="t", extensions={"source": "/x"})


@pytest.mark.parametrize(
    ("body", "headers", "told"),
    [
        (b"", {}, "not an event"),
        (b"", {"ce-id": "1"}, "not an event"),
        (b"", {"ce-specversion": "1.0", "ce-id": "1"}, "no source and no type"),
        (b"", {"ce-specversion": "1.0", "ce-a_b": "1"}, "'a_b'"),
        (b"{", {"content-type": "application/cloudevents+json"}, "not an event in JSON"),
        (b"[]", {"content-type": "application/cloudevents+json"}, "no map"),
        (b"[" * 100_000, {"content-type": "application/cloudevents+json"}, "not an event in JSON"),
        (b"{}", {"content-type": "application/cloudevents+json"}, "no specversion"),
        (
            b"{",
            {f"ce-{k}": v for k, v in EVENT.items()} | {"content-type": "application/json"},
            "the data of message 1",
        ),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_message_that_is_no_event_is_told_so(
    queue: shmq.Queue, body: bytes, headers: dict[str, str], told: str
) -> None:
    queue.put(body, headers=headers)
    with queue.get(timeout=0) as message, pytest.raises(shmq.ShmqError, match=told):
        event_of(message)


def test_an_event_round_trips_through_its_map() -> None:
    event = CloudEvent.of({**EVENT, "time": "2026-01-31t13:00:00.5+01:00", "data": b"\x00", "n": 1})
    assert CloudEvent.from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert event.to_dict()["data_base64"] == base64.b64encode(b"\x00").decode()
