"""Spans of what is done with streams, groups and transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

import shmq
from tests.support.telemetry import Recorder, links_of, trace_of


@pytest.fixture
def visits(traced: shmq.Broker) -> shmq.Stream:
    return traced.create_stream("visits", 1)


def _attribute(span: Any, name: str) -> Any:
    return (span.attributes or {}).get(f"messaging.{name}")


def test_appends_carry_the_context_and_readers_link_to_it(
    visits: shmq.Stream, recorded: Recorder
) -> None:
    visits.append("one", headers={"a": 1})
    given = {"traceparent": f"00-{7:032x}-{9:016x}-01"}
    visits.append_many(iter(["two", "three"]), headers=[None, given])
    with visits.loan(4) as view:
        view[:] = b"four"

    one, many, loan = recorded.spans("append visits")
    assert one.kind is SpanKind.PRODUCER
    assert _attribute(one, "message.id") == "0/0"
    assert _attribute(one, "destination.partition.id") == "0"
    assert _attribute(many, "batch.message_count") == 2
    assert links_of(many) == [(7, 9)]
    origins = [trace_of(one), trace_of(many), (7, 9), trace_of(loan)]
    assert len(visits.read(0, 0)) == 4
    assert links_of(recorded.span("receive visits")) == origins

    recorded.clear()
    with visits.reader(timeout=0) as reader:
        assert [record.headers.get("a") for record in reader] == [1, None, None, None]
    assert [links_of(span) for span in recorded.spans()] == [[origin] for origin in origins]
    recorded.clear()
    with visits.reader() as reader:
        (found,) = reader.poll()
    assert len(found) == 4
    assert links_of(recorded.span("receive visits")) == origins


def test_arguments_that_are_wrong_are_refused_as_ever(visits: shmq.Stream) -> None:
    with pytest.raises(TypeError):
        visits.append_many("one")
    with pytest.raises((TypeError, shmq.InvalidOption)):
        visits.append_many(["one"], headers=[])


def test_a_block_has_no_context_and_a_producer_gives_one(
    visits: shmq.Stream, recorded: Recorder
) -> None:
    visits.append("one")
    block = visits.read(0, 0).data
    visits.append_block(block, partition=0)
    assert recorded.span("send visits").kind is SpanKind.CLIENT
    recorded.clear()

    with visits.producer() as producer:
        producer.send("two")
    (record,) = visits.read(0, 2)
    sent = recorded.spans("send visits")[0]
    assert int(record.headers["traceparent"].split("-")[2], 16) == trace_of(sent)[1]


def test_typed_records_are_traced(traced: shmq.Broker, visits: shmq.Stream) -> None:
    typed = traced.typed(visits, {"type": "object"})
    typed.append({"id": 1})
    typed.append_many([{"id": 2}])
    with typed.producer() as producer:
        producer.send({"id": 3})
    records = list(visits.read(0, 0))
    assert [typed.body(record)["id"] for record in records] == [1, 2, 3]
    assert ["traceparent" in record.headers for record in records] == [True, True, False]


def test_subscriptions_and_asynchronous_readers_link_to_the_context(
    traced: shmq.Broker, visits: shmq.Stream, recorded: Recorder
) -> None:
    visits.append("one", key="a.b")
    origin = trace_of(recorded.span("append visits"))

    async def read() -> list[Any]:
        async with visits.areader(timeout=0) as reader:
            return [record.body async for record in reader]

    async def follow(found: Any) -> list[Any]:
        async with found as records:
            return [record.body async for record in records]

    assert asyncio.run(read()) == ["one"]
    found = traced.asubscribe("visits", "a.*", history=1, timeout=0)
    assert asyncio.run(follow(found)) == ["one"]
    assert asyncio.run(follow(visits.asubscribe("a.*", 1, timeout=0))) == ["one"]
    with traced.subscribe("visits", "a.*", history=1, timeout=0) as records:
        assert [record.body for record in records] == ["one"]
    with visits.subscribe("a.*", history=1) as records:
        assert len(records.poll()) == 1
    assert [links_of(span) for span in recorded.spans("receive visits")] == [[origin]] * 5


def test_members_of_groups_are_traced_with_their_group(
    visits: shmq.Stream, recorded: Recorder
) -> None:
    visits.append_many(["one", "two"])
    with visits.group("readers").join(timeout=0) as member:
        assert isinstance(member, shmq.Member)
        assert next(member).body == "one"
        member.commit()
    for name in ("receive visits", "commit visits"):
        assert _attribute(recorded.span(name), "consumer.group.name") == "readers"


def test_records_of_a_share_group_are_processed_and_settled(
    visits: shmq.Stream, recorded: Recorder
) -> None:
    visits.append_many([1, 2, 3, 4, 5])
    origin = trace_of(recorded.span("append visits"))
    with visits.share("workers") as share:
        with share.get(timeout=0) as record:
            assert isinstance(record, shmq.SharedRecord)
        share.get(timeout=0).nack()
        share.get(timeout=0).reject()
        assert share.ack_many(each.receipt for each in share.get_many(1)) == []
        for record in share.consume(timeout=0):
            record.ack()
    for name in ("process visits", "nack visits", "reject visits"):
        assert links_of(recorded.span(name)) == [origin]
    assert {_attribute(span, "consumer.group.name") for span in recorded.spans()} == {
        None,
        "workers",
    }


def test_the_spans_of_a_transaction_end_with_it(
    traced: shmq.Broker, visits: shmq.Stream, recorded: Recorder
) -> None:
    jobs = traced.create_queue("jobs")
    jobs.put("in")
    visits.append("one")
    message = jobs.get()
    with visits.group("readers").join(timeout=0) as member:
        next(member)
        recorded.clear()
        with traced.transaction() as transaction:
            transaction.put(jobs, "out")
            transaction.append("visits", "two")
            transaction.append_many(visits, ["three"])
            transaction.ack(jobs, message)
            transaction.commit(member)
            assert recorded.spans() == []
    names = [span.name for span in recorded.spans()]
    assert names == ["send jobs", "append visits", "append visits", "ack jobs", "commit visits"]
    with jobs.get() as got:
        assert got.body == "out"
    assert links_of(recorded.span("receive jobs")) == [trace_of(recorded.span("send jobs"))]


def test_a_transaction_that_is_aborted_counts_nothing(
    traced: shmq.Broker, recorded: Recorder
) -> None:
    traced.create_queue("jobs")
    with pytest.raises(ZeroDivisionError), traced.transaction() as transaction:
        transaction.put("jobs", "out")
        raise ZeroDivisionError
    assert transaction.aborted
    assert recorded.points("messaging.client.sent.messages") == []
    with pytest.raises(shmq.NoSuchQueue), traced.transaction() as transaction:
        transaction.put("none", "out")
    assert (recorded.span("send none").attributes or {})["error.type"] == "shmq.errors.NoSuchQueue"
