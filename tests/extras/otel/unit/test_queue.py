"""Spans of what is done with a queue, and the context in its messages."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import shmq
from shmq.extras.otel import instrument
from tests.support.telemetry import Recorder, links_of, parent_of, trace_of


def test_a_send_a_receive_a_process_and_a_settlement_are_related(
    jobs: shmq.Queue, recorded: Recorder
) -> None:
    jobs.put("one", headers={"region": "eu"})
    with jobs.get() as message:
        assert message.body == "one"
        assert set(message.headers) == {"region", "traceparent"}

    send, receive = recorded.span("send jobs"), recorded.span("receive jobs")
    process, ack = recorded.span("process jobs"), recorded.span("ack jobs")
    assert send.kind is SpanKind.PRODUCER
    assert process.kind is SpanKind.CONSUMER
    assert receive.kind is ack.kind is SpanKind.CLIENT
    assert links_of(receive) == links_of(process) == links_of(ack) == [trace_of(send)]
    assert parent_of(ack) == trace_of(process)
    assert dict(send.attributes or {}) == {
        "messaging.system": "shmq",
        "messaging.destination.name": "jobs",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": "1",
    }


def test_a_span_of_the_application_is_the_parent_of_its_send(
    jobs: shmq.Queue, recorded: Recorder
) -> None:
    tracer = recorded.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("order") as order:
        jobs.put_nowait("one")
    assert parent_of(recorded.span("send jobs")) == (
        order.get_span_context().trace_id,
        order.get_span_context().span_id,
    )
    with jobs.get_nowait(), tracer.start_as_current_span("work"):
        pass
    assert parent_of(recorded.span("work")) == trace_of(recorded.span("process jobs"))


def test_a_context_in_the_headers_stays_and_is_linked(jobs: shmq.Queue, recorded: Recorder) -> None:
    given = {"traceparent": f"00-{7:032x}-{9:016x}-01", "tracestate": "vendor=1"}
    jobs.put("one", headers=given)

    send = recorded.span("send jobs")
    assert send.kind is SpanKind.CLIENT
    assert links_of(send) == [(7, 9)]
    with jobs.get() as message:
        assert message.headers == given
    assert links_of(recorded.span("receive jobs")) == [(7, 9)]
    assert recorded.span("receive jobs").links[0].context.trace_state["vendor"] == "1"


@pytest.mark.parametrize("given", [7, "nonsense", f"00-{0:032x}-{0:016x}-01"])
def test_a_context_that_is_none_stays_too_and_is_not_linked(
    given: object, jobs: shmq.Queue, recorded: Recorder
) -> None:
    jobs.put("one", headers={"traceparent": given})
    with jobs.get() as message:
        assert message.headers == {"traceparent": given}
    assert all(links_of(span) == [] for span in recorded.spans())


def test_headers_of_a_wrong_type_are_refused_as_ever(
    broker: shmq.Broker, jobs: shmq.Queue, recorded: Recorder
) -> None:
    errors = []
    for queue in (broker.queue("jobs"), jobs):
        with pytest.raises(TypeError) as refusal:
            queue.put("one", headers=["region"])  # type: ignore[arg-type]
        errors.append(str(refusal.value))
    assert errors[0] == errors[1]
    assert (recorded.span("send jobs").attributes or {})["error.type"] == "TypeError"


def test_an_empty_get_leaves_no_span(jobs: shmq.Queue, recorded: Recorder) -> None:
    with pytest.raises(shmq.Empty):
        jobs.get_nowait()
    assert jobs.get_many(3, 0) == []
    assert list(jobs.consume(timeout=0)) == []
    assert list(jobs.bodies(timeout=0)) == []
    assert not jobs.get_batch(3, 0)
    assert recorded.spans() == []
    assert recorded.points("messaging.client.operation.duration") == []


def test_a_failed_put_is_an_error_with_its_type(traced: shmq.Broker, recorded: Recorder) -> None:
    small = traced.create_queue("small", capacity=2)
    assert small.put_many(range(2)) == 2
    with pytest.raises(shmq.Full):
        small.put(3)

    span = recorded.spans("send small")[-1]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "shmq.errors.Full"


def test_many_messages_have_one_context_and_one_receive_links_to_all_of_its_own(
    jobs: shmq.Queue, recorded: Recorder
) -> None:
    assert jobs.put_many(["a", "b"]) == 2
    jobs.put("c")
    messages = jobs.get_many(5)

    many, one = recorded.spans("send jobs")
    assert (many.attributes or {})["messaging.batch.message_count"] == 2
    receive = recorded.span("receive jobs")
    assert (receive.attributes or {})["messaging.batch.message_count"] == 3
    assert links_of(receive) == [trace_of(many), trace_of(many), trace_of(one)]
    assert jobs.ack_many([messages[0], messages[1].receipt, messages[2]]) == []
    assert all(message.settled for message in (messages[0], messages[2]))
    ack = recorded.span("ack jobs")
    assert links_of(ack) == [trace_of(many), trace_of(one)]
    assert (ack.attributes or {})["messaging.batch.message_count"] == 3


def test_a_span_has_at_most_128_links(broker: shmq.Broker) -> None:
    recorder = Recorder()
    recorder.tracer_provider._span_limits = SpanLimits(max_links=1000)
    queue = recorder.instrument(broker).create_queue("many")
    queue.put_many(range(200))
    queue.ack_many(queue.get_many(200))
    assert len(links_of(recorder.span("receive many"))) == 128
    assert len(links_of(recorder.span("ack many"))) == 128


def test_loops_have_a_span_for_each_message(jobs: shmq.Queue, recorded: Recorder) -> None:
    jobs.put_many(range(3))
    with jobs.consume(timeout=0) as messages:
        for message in messages:
            message.ack()
            break
    with jobs.bodies(timeout=0) as bodies:
        assert list(bodies) == [1, 2]
    assert len(recorded.spans("receive jobs")) == len(recorded.spans("ack jobs")) == 3
    assert jobs.stats().in_flight == jobs.qsize() == 0


def test_an_exception_returns_the_body_in_hand(jobs: shmq.Queue, recorded: Recorder) -> None:
    jobs.put("one")
    with pytest.raises(ZeroDivisionError), jobs.bodies(timeout=0) as bodies:
        for _ in bodies:
            raise ZeroDivisionError
    assert recorded.spans("nack jobs")
    for _ in jobs.bodies():
        break  # the iterator is dropped, and so is its message
    assert len(recorded.spans("nack jobs")) == 2
    with jobs.get() as message:
        assert message.delivery_count == 3


def test_a_loop_over_bodies_may_be_closed_after_its_queue(
    traced: shmq.Broker, jobs: shmq.Queue
) -> None:
    jobs.put("one")
    bodies = jobs.bodies()
    assert next(bodies) == "one"
    jobs.close()
    bodies.close()
    assert "bodies of" in repr(bodies)
    with traced.queue("jobs").get() as message:
        assert message.delivery_count == 2


def test_the_operations_for_asyncio_are_traced(jobs: shmq.Queue, recorded: Recorder) -> None:
    async def main() -> list[Any]:
        for number in range(3):
            await jobs.aput(number)
        with await jobs.aget(0) as message:
            first = message.body
        async with jobs.aconsume(timeout=0) as messages:
            with await anext(aiter(messages)) as message:
                second = message.body
        async with jobs.abodies(timeout=0) as bodies:
            return [first, second, *[body async for body in bodies]]

    assert asyncio.run(main()) == [0, 1, 2]
    sends, receives = recorded.spans("send jobs"), recorded.spans("receive jobs")
    assert [links_of(span) for span in receives] == [[trace_of(span)] for span in sends]
    assert len(recorded.spans("ack jobs")) == 3
    assert len(recorded.spans("process jobs")) == 2


def test_loans_pipelines_and_packed_batches_carry_the_context(
    jobs: shmq.Queue, recorded: Recorder
) -> None:
    with jobs.loan(4, headers={"a": 1}) as view:
        view[:] = b"loan"
    with pytest.raises(ZeroDivisionError), jobs.loan(4):
        raise ZeroDivisionError
    with jobs.pipeline() as pipe:
        pipe.put("pipe")
    jobs.put_packed(b"abcd", 2)

    headers = [dict(message.headers) for message in jobs.peek()]
    sends = recorded.spans("send jobs")  # that of the dropped loan, too
    carried = [int(each["traceparent"].split("-")[2], 16) for each in headers]
    assert carried == [trace_of(sends[at])[1] for at in (0, 2, 3)]
    assert headers[0]["a"] == 1
    (point,) = recorded.points("messaging.client.sent.messages")
    assert point.value == 3
    assert len(jobs.get_packed()) == 4


def test_settlements_by_receipt_are_traced(jobs: shmq.Queue, recorded: Recorder) -> None:
    jobs.put("one")
    jobs.nack(jobs.get().receipt, 0)
    held = jobs.get()
    jobs.extend(held, 60)  # type: ignore[arg-type]
    jobs.nack(held, 0)  # type: ignore[arg-type]
    assert jobs.qsize() == 1
    jobs.reject(jobs.get().receipt)
    with pytest.raises(shmq.LeaseExpired):
        jobs.ack(1)
    assert [len(span.links) for span in recorded.spans("nack jobs")] == [0, 1]
    assert recorded.span("reject jobs").status.is_ok
    assert recorded.span("ack jobs").status.status_code is StatusCode.ERROR


def test_metrics_count_messages_and_measure_operations(
    jobs: shmq.Queue, recorded: Recorder
) -> None:
    jobs.put_many(range(4))
    for message in jobs.get_many(3):
        with message:
            pass
    with jobs.get():
        pass

    (sent,) = recorded.points("messaging.client.sent.messages")
    assert sent.value == 4
    assert dict(sent.attributes) == {
        "messaging.system": "shmq",
        "messaging.destination.name": "jobs",
        "messaging.operation.name": "send",
    }
    (consumed,) = recorded.points("messaging.client.consumed.messages")
    assert consumed.value == 4
    durations = recorded.points("messaging.client.operation.duration")
    assert {each.attributes["messaging.operation.type"]: each.count for each in durations} == {
        "send": 1,
        "receive": 2,
        "settle": 4,
    }
    assert durations[0].explicit_bounds[0] == 0.005
    assert durations[0].explicit_bounds[-1] == 10
    (processed,) = recorded.points("messaging.process.duration")
    assert processed.count == 4


def test_a_traced_queue_is_a_queue_wherever_one_is_taken(
    traced: shmq.Broker, jobs: shmq.Queue, recorded: Recorder
) -> None:
    assert isinstance(traced, shmq.Broker)
    assert isinstance(jobs, shmq.Queue)
    other = traced.create_queue("other")
    other.put("one")
    assert shmq.wait([jobs, other], 0) == [other]
    with pytest.raises(TypeError, match="is one queue, not many"):
        shmq.wait(jobs)  # type: ignore[arg-type]
    with other.get() as message:
        assert isinstance(message, shmq.Message)
    with pickle.loads(pickle.dumps(jobs)) as again:
        assert again.name == "jobs"
        again.put("two")
    assert jobs.get_nowait().body == "two"
    assert jobs.stats().put == 1


def test_a_broker_may_be_traced_anew(traced: shmq.Broker, recorded: Recorder) -> None:
    second = Recorder()
    second.instrument(traced).ensure_queue("jobs").put("one")
    assert second.spans("send jobs")
    assert not recorded.spans()


class _Failing(SpanExporter, SpanProcessor):
    def export(self, spans: object) -> Any:
        raise OSError("no collector")

    def on_start(self, span: object, parent_context: object = None) -> None:
        raise OSError("no processor")

    def on_end(self, span: object) -> None:
        raise OSError("no processor")

    def shutdown(self) -> None:
        pass


@pytest.mark.parametrize("part", ["exporter", "processor"])
def test_an_error_of_an_exporter_or_a_processor_fails_no_operation(
    part: str, broker: shmq.Broker
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    failing = _Failing()
    provider.add_span_processor(SimpleSpanProcessor(failing) if part == "exporter" else failing)
    queue = instrument(broker, tracer_provider=provider).create_queue("jobs")

    queue.put("one")
    with queue.get() as message:
        assert message.body == "one"
    assert queue.qsize() == queue.stats().in_flight == 0


def test_replies_belong_to_the_handling_of_their_requests(
    traced: shmq.Broker, jobs: shmq.Queue, recorded: Recorder
) -> None:
    stop = threading.Event()

    def handle(message: shmq.Message) -> Any:
        if message.body == "bad":
            raise shmq.Reject("never")
        return sum(message.body)

    server = threading.Thread(target=lambda: traced.serve("jobs", handle, stop=stop), name="serves")
    server.start()
    try:
        assert traced.request("jobs", [1, 2], 60).body == 3
        assert traced.request(jobs, [3], 60).body == 3
        with pytest.raises(shmq.RequestFailed):
            traced.request("jobs", "bad", 60)
    finally:
        stop.set()
        server.join()

    requests, replies = recorded.spans("request jobs"), recorded.spans("send (reply)")
    processes = recorded.spans("process jobs")
    assert [links_of(span) for span in processes] == [[trace_of(span)] for span in requests]
    assert [parent_of(span) for span in replies] == [trace_of(span) for span in processes]
    assert links_of(requests[0]) == [trace_of(replies[0])]
    settled = [*recorded.spans("ack jobs"), *recorded.spans("reject jobs")]
    assert [parent_of(span) for span in settled] == [trace_of(span) for span in processes]
    assert processes[2].status.status_code is StatusCode.ERROR
    names = {
        point.attributes.get("messaging.destination.name")
        for point in recorded.points("messaging.client.sent.messages")
    }
    assert names == {"jobs", None}


@pytest.mark.parametrize("taken", ["its own", "another"])
def test_a_message_that_a_handler_enters_is_processed_once(
    taken: str, jobs: shmq.Queue, recorded: Recorder
) -> None:
    tracer = recorded.tracer_provider.get_tracer("app")

    def handle(message: shmq.Message) -> None:
        with tracer.start_as_current_span("work"):
            entered = message if taken == "its own" else jobs.get_nowait()
            with entered:
                pass

    jobs.put_many(["one", "two"])
    message = jobs.get()
    jobs.processing(handle)(message)  # type: ignore[attr-defined]
    if not message.settled:
        message.ack()

    calls = [trace_of(span) for span in recorded.spans("process jobs")]
    assert len(calls) == (1 if taken == "its own" else 2)
    outer = trace_of(recorded.span("work")) if taken == "its own" else calls[-1]
    assert parent_of(recorded.spans("ack jobs")[-1]) == outer
    jobs.put("three")
    jobs.get().ack()  # of no handler's call
    assert parent_of(recorded.spans("ack jobs")[-1]) is None


def test_a_request_in_asyncio_is_traced(
    traced: shmq.Broker, jobs: shmq.Queue, recorded: Recorder
) -> None:
    async def main() -> Any:
        asked = asyncio.create_task(traced.arequest(jobs, [1], 60))
        with await jobs.aget(60) as message:
            assert message.reply_to is not None
            with traced.queue(message.reply_to) as replies:
                await replies.aput("done", correlation=message.correlation)
        return (await asked).body

    assert asyncio.run(main()) == "done"
    assert parent_of(recorded.span("send (reply)")) == trace_of(recorded.span("process jobs"))


def test_typed_queues_and_exchanges_carry_the_context(
    traced: shmq.Broker, jobs: shmq.Queue, recorded: Recorder
) -> None:
    typed = traced.typed("jobs", {"type": "object"})
    typed.put({"id": 1})
    topic = traced.create_exchange("topic", "fanout")
    topic.bind("jobs")
    topic.publish({"id": 2})
    topic.publish_many([{"id": 3}, {"id": 4}])

    first, second, third, fourth = jobs.get_many(4)
    assert typed.body(first) == {"id": 1}
    sends = [*recorded.spans("send jobs"), *recorded.spans("publish topic")]
    links = links_of(recorded.span("receive jobs"))
    assert links == [trace_of(sends[at]) for at in (0, 1, 2, 2)]
    assert jobs.ack_many([first, second, third, fourth]) == []
