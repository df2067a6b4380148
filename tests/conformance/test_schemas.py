"""Schemas of queues: versions, rules, and puts that are checked.

Other levels: system/cli/test_schema.py.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import msgspec
import pytest

import shmq
from shmq import Broker, Queue, Stream

from .conftest import Connect
from .tools import LATER, drain

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
    },
    "required": ["id"],
    "$defs": {"item": {"type": "object", "properties": {"price": {"type": "number"}}}},
}
WITH_NOTE = {**ORDER, "properties": {**ORDER["properties"], "note": {"type": "string"}}}
OTHER_ID = {**ORDER, "properties": {**ORDER["properties"], "id": {"type": "string"}}}


class Order(msgspec.Struct):
    id: int
    name: str = ""


def test_versions_are_counted_and_kept(connect: Connect, queue: Queue) -> None:
    broker = connect()

    assert broker.schemas("q") == []
    assert broker.set_schema("q", ORDER) == 1
    assert broker.set_schema("q", ORDER) == 1
    assert broker.set_schema("q", WITH_NOTE) == 2

    first, second = connect().schemas("q")
    assert (first.version, first.schema, first.compatibility) == (1, ORDER, "backward")
    assert (second.version, second.schema, second.name) == (2, WITH_NOTE, "q")
    assert connect().schema("q") == second
    assert connect().schema("q", 1) == first


def test_a_schema_that_breaks_the_rule_is_refused_with_the_field(
    broker: Broker, queue: Queue
) -> None:
    broker.set_schema("q", ORDER)

    with pytest.raises(shmq.SchemaError, match="'id'") as found:
        broker.set_schema("q", OTHER_ID)

    assert (found.value.name, found.value.field) == ("q", "id")
    assert "backward" in str(found.value) and "version 1" in str(found.value)
    again = pickle.loads(pickle.dumps(found.value))
    assert (str(again), again.field) == (str(found.value), "id")
    assert len(broker.schemas("q")) == 1


def test_the_rule_is_that_of_the_newest_version_unless_it_is_given(
    broker: Broker, queue: Queue
) -> None:
    broker.set_schema("q", ORDER, "none")
    assert broker.set_schema("q", OTHER_ID) == 2
    with pytest.raises(shmq.SchemaError):
        broker.set_schema("q", ORDER, "full")
    with pytest.raises(shmq.InvalidOption, match="sideways"):
        broker.set_schema("q", ORDER, "sideways")


def test_a_new_version_is_compared_with_every_one_before(broker: Broker, queue: Queue) -> None:
    broker.set_schema("q", ORDER)
    broker.set_schema("q", {}, "none")  # anything goes
    with pytest.raises(shmq.SchemaError, match="version 1"):
        broker.set_schema("q", {"properties": {"id": {"type": "string"}}}, "forward")


def test_a_check_changes_nothing(broker: Broker, queue: Queue) -> None:
    broker.check_schema("q", ORDER)
    assert broker.schemas("q") == []
    broker.set_schema("q", ORDER)
    with pytest.raises(shmq.SchemaError, match="id"):
        broker.check_schema("q", OTHER_ID)
    broker.check_schema("q", WITH_NOTE)
    assert len(broker.schemas("q")) == 1


def test_what_is_no_schema_is_refused(broker: Broker, queue: Queue) -> None:
    for wrong in ({"type": "thing"}, {"required": "id"}, {"$ref": "#/no"}, {"$ref": "file:///x"}):
        with pytest.raises(shmq.InvalidOption):
            broker.set_schema("q", wrong)
    with pytest.raises(TypeError):
        broker.set_schema("q", 7)
    with pytest.raises(shmq.InvalidOption, match="version 3"):
        broker.schema("q", 3)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
        {"if": {"not": {"$ref": "#"}}},
    ],
)
def test_a_schema_that_only_leads_back_to_itself_is_refused(
    broker: Broker, queue: Queue, schema: dict[str, Any]
) -> None:
    with pytest.raises(shmq.SchemaError, match="refers to itself"):
        broker.set_schema("q", schema)
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}}, "items": {"$ref": "#"}}
    assert broker.set_schema("q", tree) == 1


def test_a_body_that_is_nested_too_deep_is_refused(broker: Broker, queue: Queue) -> None:
    typed = broker.typed("q", {"type": "array", "items": {"$ref": "#"}})
    body: list[Any] = []
    for _ in range(900):
        body = [body]
    with pytest.raises(shmq.SchemaError, match="nested too deep"):
        typed.put(body)
    typed.put([[]])


def test_a_schema_is_of_a_queue_that_is_there_and_goes_with_it(
    broker: Broker, queue: Queue
) -> None:
    for ask in (broker.schemas, broker.schema):
        with pytest.raises(shmq.NoSuchQueue, match="nowhere"):
            ask("nowhere")
    with pytest.raises(shmq.NoSuchQueue, match="nowhere"):
        broker.set_schema("nowhere", ORDER)

    broker.set_schema("q", ORDER)
    broker.delete_queue("q")
    broker.create_queue("q")
    assert broker.schemas("q") == []


def test_a_put_that_breaks_the_schema_is_refused_with_the_field(
    broker: Broker, queue: Queue
) -> None:
    orders = broker.typed("q", ORDER)
    wrong = {
        "id": {"id": "7"},
        "items[1].price": {"id": 1, "items": [{"price": 1}, {"price": "much"}]},
        "": "no map",
    }
    for field, body in wrong.items():
        with pytest.raises(shmq.SchemaError) as found:
            orders.put(body)
        assert found.value.field == field
    with pytest.raises(shmq.SchemaError, match="missing") as found:
        orders.put({"items": []})
    assert found.value.field == "id"
    with pytest.raises(shmq.SchemaError):
        orders.put_many([{"id": 1}, {}])

    assert queue.qsize() == 0


def test_a_put_that_is_as_the_schema_says_goes_in_with_its_version(
    broker: Broker, queue: Queue
) -> None:
    orders = broker.typed(queue, ORDER)
    orders.put({"id": 1}, headers={"a": "b"}, priority=2)
    assert orders.put_many([{"id": 2}, {"id": 3, "items": [{"price": 1.5}]}]) == 2
    asyncio.run(orders.aput({"id": 4}))

    with queue.get() as message:
        assert message.headers == {"a": "b", "shmq-schema": 1}
        assert orders.body(message) == {"id": 1}
    assert [body["id"] for body in drain(queue)] == [2, 3, 4]
    assert orders.version == 1 and orders.queue is queue


def test_the_newest_schema_counts_where_none_is_given(connect: Connect, queue: Queue) -> None:
    with pytest.raises(shmq.InvalidOption, match="no schema"):
        connect().typed("q")
    connect().set_schema("q", ORDER)

    orders = connect().typed("q")

    with pytest.raises(shmq.SchemaError, match="'id'"):
        orders.put({"id": None})


def test_a_struct_is_a_schema_and_a_body(broker: Broker, queue: Queue) -> None:
    orders = broker.typed("q", Order)
    orders.put(Order(7, "seven"))
    orders.put({"id": 8})
    with pytest.raises(shmq.SchemaError, match="'id'"):
        orders.put(Order("x"))  # type: ignore[arg-type]

    assert [orders.body(message) for message in queue.get_many(2)] == [Order(7, "seven"), Order(8)]
    assert broker.schema("q").schema["$ref"] == "#/$defs/Order"


def test_a_body_that_is_not_as_the_schema_says_is_told_of(broker: Broker, queue: Queue) -> None:
    orders = broker.typed("q", Order)
    queue.put({"id": "by the queue itself"})

    with queue.get() as message, pytest.raises(shmq.SchemaError, match="'id'"):
        orders.body(message)


@pytest.fixture
def stream(broker: Broker) -> Stream:
    return broker.create_stream("events", 1)


def test_an_append_that_breaks_the_schema_is_refused_with_the_field(
    broker: Broker, stream: Stream
) -> None:
    orders = broker.typed(stream, ORDER)
    with pytest.raises(shmq.SchemaError) as found:
        orders.append({"id": 1, "items": [{"price": "much"}]})
    assert (found.value.name, found.value.field) == ("events", "items[0].price")
    with pytest.raises(shmq.SchemaError, match="'id'"):
        orders.append_many([{"id": 1}, {}])
    with pytest.raises(shmq.SchemaError):
        orders.check({"id": None})
    assert stream.latest(0) == 0

    orders.append({"id": 1}, key="k", headers={"a": 1})
    orders.append_many([{"id": 2}, {"id": 3}])
    found_there = list(stream.read(0, 0))
    assert [orders.body(each) for each in found_there] == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert found_there[0].headers == {"a": 1, "shmq-schema": 1}
    assert (orders.version, orders.stream) == (1, stream)


def test_a_producer_whose_schema_is_broken_is_refused_with_the_field(
    connect: Connect, stream: Stream
) -> None:
    broker = connect()
    orders = broker.typed(broker.stream("events"), Order)
    with orders.producer(linger=LATER, compression="lz4") as producer:
        producer.send(Order(1, "one"), key="one")
        with pytest.raises(shmq.SchemaError) as found:
            producer.send({"id": "two"})
        producer.send({"id": 3})
        assert producer.pending == 2

    assert found.value.field == "id"
    assert [orders.body(each) for each in stream.read(0, 0)] == [Order(1, "one"), Order(3)]
    with pytest.raises(shmq.SchemaError, match="id"):
        broker.typed(stream, OTHER_ID)


def test_a_schema_goes_with_its_stream(broker: Broker, stream: Stream) -> None:
    broker.set_schema("events", ORDER)
    broker.delete_stream("events")
    stream = broker.create_stream("events", 1)
    assert broker.schemas("events") == []
    with pytest.raises(shmq.InvalidOption, match="no schema"):
        broker.typed(stream)
