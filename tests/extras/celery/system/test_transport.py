"""The transport of kombu: what its own tests do not ask (see tests/extras/celery/prove)."""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from tests.support.stopped import locks_of_queue
from tests.support.waiting import PATIENCE, eventually

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.asynchronous import Hub
from kombu.exceptions import ChannelError, OperationalError
from kombu.transport.virtual.base import NotEquivalentError


def publish(connection: Any, body: Any, queue: Any, **more: Any) -> None:
    with Producer(connection) as producer:
        producer.publish(body, routing_key=queue.name, declare=[queue], **more)


def url_of(target: str) -> str:
    return target if "://" in target else f"shmq:///{target}"


def take(connection: Any, queue: Any, **more: Any) -> Any:
    return queue(connection.default_channel).get(**more)


def turn_until(turns: Iterator[Any], taken: list[Any], count: int) -> None:
    """Turn the loop until so many messages were taken."""

    def are() -> bool:
        next(turns)
        return len(taken) == count

    eventually(are, f"{count} messages are taken")


def test_the_console_sees_the_body_and_the_headers(connection: Any, broker: shmq.Broker) -> None:
    publish(connection, {"id": 1}, Queue("tasks"), headers={"task": "app.add"})
    (found,) = broker.queue("tasks").peek(where="header.task = 'app.add'")
    assert found.body == '{"id": 1}'


def test_headers_that_msgpack_cannot_hold_arrive(connection: Any) -> None:
    queue = Queue("tasks")
    at, number = dt.datetime.now(dt.UTC), uuid.uuid4()
    publish(connection, "x", queue, headers={"at": at, "number": number})
    assert take(connection, queue, no_ack=True).headers == {"at": at, "number": number}


def test_a_message_that_kombu_did_not_put_is_delivered(
    connection: Any, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    queue(connection.default_channel).declare()
    broker.queue("tasks").put({"id": 1}, codec="json")
    broker.queue("tasks").put(b"\x01")
    first, second = (take(connection, queue, no_ack=True) for _ in range(2))
    assert first.decode() == {"id": 1}
    assert (second.body, second.content_type) == (b"\x01", "application/data")


def test_a_requeued_message_is_redelivered_and_one_of_a_closed_channel_is_not(
    connection: Any,
) -> None:
    queue = Queue("tasks")
    publish(connection, 1, queue)
    with connection.channel() as channel:
        held = queue(channel).get()
        assert not held.delivery_info["redelivered"]
    again = take(connection, queue)
    assert not again.delivery_info["redelivered"]
    again.requeue()
    assert take(connection, queue).delivery_info["redelivered"]


def test_a_rejected_message_is_a_dead_letter_that_says_why(
    connection: Any, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    publish(connection, 1, queue)
    take(connection, queue).reject()
    (found,) = broker.queue("tasks.dlq").peek()
    assert found.dead is not None
    assert (found.dead.reason, found.dead.queue) == ("rejected", "tasks")


def test_a_message_that_is_requeued_too_often_is_a_dead_letter(
    namespace: str, broker: shmq.Broker
) -> None:
    queue, options = Queue("tasks"), {"max_deliveries": 2}
    with Connection(f"shmq:///{namespace}", transport_options=options) as connection:
        publish(connection, 1, queue)
        for _ in range(2):
            take(connection, queue).requeue()
        assert take(connection, queue) is None
    (found,) = broker.queue("tasks.dlq").peek()
    assert found.dead is not None
    assert (found.dead.reason, found.dead.deliveries) == ("max_deliveries", 2)


def test_an_expired_message_is_dropped(connection: Any, broker: shmq.Broker) -> None:
    queue = Queue("tasks")
    publish(connection, 1, queue, expiration=0.001)
    eventually(broker.queue("tasks").empty, "the message has expired")
    assert broker.queue("tasks").stats().dropped_expired == 1
    assert broker.queue("tasks.dlq").empty()


def test_a_task_with_a_time_waits_in_the_broker(connection: Any, broker: shmq.Broker) -> None:
    queue = Queue("tasks")
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    publish(connection, 1, queue, headers={"eta": later.isoformat()})
    assert take(connection, queue) is None
    assert broker.queue("tasks").stats().delayed == 1
    publish(connection, 2, queue, headers={"eta": "once upon a time"})
    assert take(connection, queue, no_ack=True).decode() == 2


def test_a_full_queue_refuses_after_the_timeout(namespace: str) -> None:
    options = {"capacity": 2, "put_timeout": 0.05}
    with Connection(f"shmq:///{namespace}", transport_options=options) as connection:
        queue = Queue("tasks")
        publish(connection, 1, queue)
        publish(connection, 2, queue)
        with pytest.raises(OperationalError, match="full"):
            publish(connection, 3, queue)


def test_a_queue_with_other_options_is_refused_with_both_values(
    connection: Any, broker: shmq.Broker
) -> None:
    broker.create_queue("tasks", priorities=3)
    with pytest.raises(NotEquivalentError, match=r"deliveries=5, not 20; .*priorities=3, not 10"):
        publish(connection, 1, Queue("tasks"))
    with pytest.raises(NotEquivalentError, match="ttl"):
        for message_ttl in (1, 2):
            Queue("short", message_ttl=message_ttl)(connection.default_channel).declare()


def test_an_exchange_of_another_type_is_refused(connection: Any) -> None:
    Exchange("news", "fanout")(connection.default_channel).declare()
    with pytest.raises(NotEquivalentError, match="fanout"):
        Exchange("news", "topic")(connection.default_channel).declare()


def test_what_does_not_exist_is_not_found(connection: Any) -> None:
    channel = connection.default_channel
    refusals: list[Callable[[], Any]] = [
        lambda: channel.queue_declare("none", passive=True),
        lambda: channel.exchange_declare("none", passive=True),
        lambda: channel.basic_get("none"),
        lambda: channel.queue_purge("none"),
        lambda: channel.queue_bind("none", "amq.direct"),
        lambda: Producer(channel).publish(1, exchange="none", routing_key="x"),
    ]
    for refused in refusals:
        with pytest.raises((ChannelError, OperationalError), match="NOT_FOUND"):
            refused()
    channel.queue_delete("none")
    channel.exchange_delete("none")


def test_a_queue_in_use_is_deleted_only_without_conditions(
    connection: Any, broker: shmq.Broker
) -> None:
    queue, channel = Queue("tasks"), connection.default_channel
    publish(connection, 1, queue)
    with pytest.raises(ChannelError, match="not empty"):
        channel.queue_delete("tasks", if_empty=True)
    held = take(connection, queue)
    with pytest.raises(ChannelError, match="in use"):
        channel.queue_delete("tasks", if_unused=True)
    held.ack()
    channel.queue_delete("tasks", if_unused=True, if_empty=True)
    assert broker.queue_names() == []


def test_a_message_to_no_queue_is_dropped_and_a_declared_queue_is_made_anew(
    connection: Any, broker: shmq.Broker
) -> None:
    producer = Producer(connection)
    producer.publish(1, routing_key="nobody")
    Exchange("news", "topic")(connection.default_channel).declare()
    producer.publish(1, exchange="news", routing_key="nobody")
    assert broker.queue_names() == []

    queue = Queue("tasks")
    publish(connection, 1, queue)
    broker.delete_queue("tasks")
    publish(connection, 2, queue)
    assert take(connection, queue, no_ack=True).decode() == 2


def test_bindings_are_shared_and_headers_and_exchanges_are_bound(
    namespace: str, connection: Any
) -> None:
    news = Exchange("news", "headers")
    queue = Queue("eu", news, binding_arguments={"region": "eu", "x-match": "all"})
    queue(connection.default_channel).declare()
    source = Exchange("source", "fanout")(connection.default_channel)
    source.declare()
    news(connection.default_channel).bind_to(source)
    with Connection(f"shmq:///{namespace}") as another:
        for region in ("eu", "us"):
            headers = {"region": region}
            Producer(another).publish(region, exchange="source", headers=headers)
        assert take(another, queue, no_ack=True).decode() == "eu"
        assert take(another, queue) is None
        bindings = another.get_manager().get_bindings()
    assert {"destination": "eu", "source": "news", "routing_key": ""} in bindings


def test_no_more_is_fetched_than_the_prefetch_window_has_room_for(
    connection: Any, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    taken: list[Any] = []
    for number in range(5):
        publish(connection, number, queue)
    with Consumer(connection, [queue], on_message=taken.append, prefetch_count=2):
        connection.drain_events(timeout=PATIENCE)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0)
        assert broker.queue("tasks").stats().in_flight == 2
        taken[0].ack()
        connection.drain_events(timeout=PATIENCE)
    assert [message.decode() for message in taken] == [0, 1, 2]


def test_a_child_of_a_fork_settles_nothing_of_its_parents(
    connection: Any, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    publish(connection, 1, queue)
    held = take(connection, queue)
    child = os.fork()
    if not child:
        code = 1
        try:
            held.ack()
            connection.release()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert broker.queue("tasks").stats().in_flight == 1
    held.ack()
    assert broker.queue("tasks").stats().in_flight == 0


def test_a_consumer_wakes_when_another_process_publishes(namespace: str, connection: Any) -> None:
    queue = Queue("tasks")
    taken: list[Any] = []
    with Consumer(connection, [queue], on_message=taken.append, no_ack=True):
        child = os.fork()
        if not child:
            try:
                with Connection(f"shmq:///{namespace}") as own:
                    time.sleep(0.05)  # so that the parent waits; if not, the test passes as well
                    publish(own, 1, queue)
            finally:
                os._exit(0)
        connection.drain_events(timeout=PATIENCE)
        os.waitpid(child, 0)
    assert [message.decode() for message in taken] == [1]


def test_a_deleted_queue_is_a_lost_connection_to_its_consumer(
    connection: Any, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    with Consumer(connection, [queue]):
        broker.delete_queue("tasks")
        with pytest.raises(connection.connection_errors):
            connection.drain_events(timeout=PATIENCE)


def test_the_url_that_is_shown_has_no_token() -> None:
    import shmq.extras.celery  # noqa: F401

    connection = Connection("shmq://:s3cret@127.0.0.1:1")
    assert "s3cret" not in repr(connection) + connection.as_uri()
    with pytest.raises(OperationalError) as caught:
        connection.ensure_connection(max_retries=1, interval_start=0)
    assert "127.0.0.1:1" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_loop_sleeps_while_messages_wait_and_the_window_is_full(connection: Any) -> None:
    queue = Queue("tasks")
    taken: list[Any] = []
    events: list[Any] = []
    loop = Hub()
    poll = loop.poller.poll

    def look(_: float) -> Any:
        events.append(poll(0))
        return events[-1]

    loop.poller.poll = look
    with Consumer(connection, [queue], on_message=taken.append, prefetch_count=1):
        connection.register_with_event_loop(loop)
        turns = loop.create_loop()
        for _ in range(10):
            next(turns)  # so that a descriptor of the queue is watched
        for number in range(3):
            publish(connection, number, queue)
        eventually(lambda: next(turns) is None and len(taken) == 1, "the first message")
        for _ in range(20):
            next(turns)
        assert not any(events[-10:]), "a descriptor is readable though nothing may be taken"

        taken[0].ack()
        eventually(lambda: next(turns) is None and len(taken) == 2, "the next message")
        connection.transport.unregister_from_event_loop(connection.connection, loop)
    loop.close()


@pytest.mark.parametrize("channels", [1, 2])
def test_what_a_callback_cancels_is_given_no_message_of_another_queue(
    connection: Any, broker: shmq.Broker, channels: int
) -> None:
    first, second = Queue("first"), Queue("second")
    for queue in (first, second):
        for number in range(3):
            publish(connection, number, queue)
    taken: list[Any] = []
    here = connection.channel()
    there = connection.channel() if channels == 2 else here
    consumers = [Consumer(here, [first]), Consumer(there, [second])]

    def cancel_all(message: Any) -> None:
        taken.append(message)
        for consumer in consumers:
            consumer.cancel()

    for consumer in consumers:
        consumer.on_message = cancel_all
        consumer.consume()
    connection.drain_events(timeout=PATIENCE)
    assert len(taken) == 1
    taken[0].ack()
    stats = [broker.queue(name).stats() for name in ("first", "second")]
    assert [each.in_flight for each in stats] == [0, 0]
    assert sum(each.depth for each in stats) == 5
    for name in ("first", "second"):
        for message in broker.queue(name).get_many(3, block=False):
            assert message.delivery_count == 1


def test_what_a_consumer_has_fetched_returns_uncounted_when_it_is_cancelled(
    connection: Any, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    for number in range(5):
        publish(connection, number, queue)
    consumer = Consumer(connection, [queue])
    taken: list[Any] = []

    def take_one(message: Any) -> None:
        taken.append(message)
        consumer.cancel()

    consumer.on_message = take_one
    consumer.consume()
    connection.drain_events(timeout=PATIENCE)
    stats = broker.queue("tasks").stats()
    assert (len(taken), stats.in_flight, stats.depth) == (1, 1, 4)
    taken[0].ack()
    rest = [take(connection, queue, no_ack=True) for _ in range(4)]
    assert [message.decode() for message in rest] == [1, 2, 3, 4]
    assert not any(message.delivery_info["redelivered"] for message in rest)


@pytest.mark.prove
def test_an_acknowledgement_that_got_no_lock_may_be_repeated(
    connection: Any, namespace: str, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    publish(connection, 1, queue)
    message = take(connection, queue)
    lock = locks_of_queue(namespace, "tasks")["gets"]
    with lock.held_by_stopped(), pytest.raises(shmq.LockTimeout):
        message.ack()
    message.ack()
    stats = broker.queue("tasks").stats()
    assert (stats.acked, stats.in_flight, stats.depth) == (1, 0, 0)


@pytest.mark.prove
@pytest.mark.parametrize("no_ack", [False, True])
def test_what_got_no_lock_returns_with_the_rest_of_its_channel(
    connection: Any, namespace: str, broker: shmq.Broker, no_ack: bool
) -> None:
    queues = [Queue("first"), Queue("second")]
    for queue in queues:
        publish(connection, 1, queue)
    channel = connection.default_channel
    if no_ack:
        Consumer(channel, queues[:1], on_message=lambda _: None, no_ack=True).consume()
        assert channel.fetch("first", 1) == 1
    else:
        queues[0](channel).get()
    queues[1](channel).get()
    with locks_of_queue(namespace, "first")["gets"].held_by_stopped():
        if no_ack:
            with pytest.raises(shmq.LockTimeout):
                connection.drain_events(timeout=PATIENCE)
        with pytest.raises(shmq.LockTimeout):
            channel.basic_recover(requeue=True)
    assert [broker.queue(queue.name).qsize() for queue in queues] == [0, 1]
    channel.basic_recover(requeue=True)
    assert [broker.queue(queue.name).qsize() for queue in queues] == [1, 1]


def test_a_callback_that_fails_leaves_the_rest_to_the_next_drain(connection: Any) -> None:
    queue = Queue("tasks")
    taken: list[Any] = []
    for number in range(3):
        publish(connection, number, queue)

    def fail_first(message: Any) -> None:
        taken.append(message.decode())
        if len(taken) == 1:
            raise ValueError("of the application")

    with Consumer(connection, [queue], on_message=fail_first, no_ack=True):
        with pytest.raises(ValueError, match="of the application"):
            connection.drain_events(timeout=PATIENCE)
        connection.drain_events(timeout=PATIENCE)
    assert taken == [0, 1, 2]


def test_the_queues_of_a_channel_share_its_window(connection: Any, broker: shmq.Broker) -> None:
    queues = [Queue("one"), Queue("two")]
    taken: list[Any] = []
    for queue in queues:
        for number in range(20):
            publish(connection, number, queue)
    with Consumer(connection, queues, on_message=taken.append, prefetch_count=8):
        connection.drain_events(timeout=PATIENCE)
        assert [broker.queue(queue.name).stats().in_flight for queue in queues] == [4, 4]
    assert len(taken) == 8


def test_a_loop_delivers_from_queues_that_it_has_found_empty(target: str) -> None:
    queues = [Queue("one"), Queue("two")]
    taken: list[str] = []
    loop = Hub()
    with Connection(url_of(target)) as connection, Connection(url_of(target)) as other:

        def run(message: Any) -> None:
            taken.append(message.decode())
            message.ack()

        with Consumer(connection, queues, on_message=run, prefetch_count=2):
            connection.register_with_event_loop(loop)
            turns = loop.create_loop()
            for number in range(20):
                name = queues[number % 2].name
                publish(other, f"{name} {number}", queues[number % 2])
                turn_until(turns, taken, number + 1)
            for queue in queues:
                assert queue(other.default_channel).queue_declare(passive=True).message_count == 0
            connection.transport.unregister_from_event_loop(connection.connection, loop)
    loop.close()


def test_an_acknowledgement_is_sent_at_once_without_a_loop(
    target: str, broker: shmq.Broker
) -> None:
    queue = Queue("tasks")
    with Connection(url_of(target)) as connection:
        publish(connection, 1, queue)
        take(connection, queue).ack()
        eventually(lambda: not broker.queue("tasks").stats().in_flight, "the acknowledgement")
        publish(connection, 2, queue)
        take(connection, queue).ack()
    assert not broker.queue("tasks").stats().in_flight


def test_a_loop_delivers_remote_control_before_tasks_published_after_it(target: str) -> None:
    control, tasks = Queue("control"), Queue("tasks")
    taken: list[str] = []
    loop = Hub()
    with Connection(url_of(target)) as connection, Connection(url_of(target)) as other:

        def run(message: Any) -> None:
            taken.append(message.decode())

        with (
            Consumer(connection.channel(), [control], on_message=run, no_ack=True),
            Consumer(connection.channel(), [tasks], on_message=run),
        ):
            connection.register_with_event_loop(loop)
            turns = loop.create_loop()
            for number in range(20):
                publish(other, f"control {number}", control)
                publish(other, f"task {number}", tasks)
                turn_until(turns, taken, 2 * number + 2)
            connection.transport.unregister_from_event_loop(connection.connection, loop)
    loop.close()
    assert taken == [f"{kind} {number}" for number in range(20) for kind in ("control", "task")]


def test_a_callback_may_leave_the_loop_in_its_own_turn(namespace: str) -> None:
    hub = Hub()
    with Connection(url_of(namespace)) as connection:
        queue = Queue("tasks")
        publish(connection, 1, queue)
        transport = connection.transport
        taken: list[Any] = []

        def close(message: Any) -> None:
            taken.append(message)
            transport._loop_delivery.close()

        with Consumer(connection, [queue], on_message=close, no_ack=True):
            transport.register_with_event_loop(transport, hub)
            turn_until(hub.create_loop(), taken, 1)
    hub.close()
