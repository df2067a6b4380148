"""What the broker of dramatiq does beyond what dramatiq's own tests see."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dramatiq
import pytest
from dramatiq import Actor, Message, Worker
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound
from dramatiq.rate_limits import (
    Barrier,
    BucketRateLimiter,
    ConcurrentRateLimiter,
    RateLimiter,
    WindowRateLimiter,
)

import shmq
from shmq.client.local.dead_letters import DeadLetters
from shmq.extras.dramatiq import ShmqBroker, ShmqRateLimiterBackend
from shmq.extras.dramatiq.consumer import LeasedMessage
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def broker(target: str) -> Iterator[ShmqBroker]:
    broker = ShmqBroker(target)
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def ran(broker: ShmqBroker) -> list[Any]:
    """What the actor `run` was called with."""
    called: list[Any] = []
    actor(broker, "run", called.append)
    return called


@pytest.fixture
def run(broker: ShmqBroker, ran: list[Any]) -> Actor[..., Any]:
    return broker.get_actor("run")


@pytest.fixture
def queue(broker: ShmqBroker, run: Actor[..., Any], namespace: str) -> Iterator[shmq.Queue]:
    """The actor's queue, looked at locally."""
    broker.flush("default")
    with shmq.connect(namespace) as local:
        yield local.queue("default")


def actor(
    broker: ShmqBroker, name: str, work: Callable[..., Any], **options: Any
) -> Actor[..., Any]:
    """An actor of the broker."""
    declare = dramatiq.actor(actor_name=name, broker=broker, **options)
    declared: Actor[..., Any] = declare(work)
    return declared


def working(broker: ShmqBroker, threads: int = 1) -> Worker:
    """A worker that has started."""
    worker = Worker(broker, worker_timeout=50, worker_threads=threads)
    worker.start()
    started: list[Any] = [*worker.workers, *worker.consumers.values()]
    eventually(lambda: all(thread.running for thread in started), "the worker runs")
    return worker


def test_a_delayed_message_waits_in_the_queue_and_in_no_worker(
    broker: ShmqBroker, run: Actor[..., Any], queue: shmq.Queue, ran: list[Any]
) -> None:
    worker = working(broker)
    run.send_with_options(args=(1,), delay=3_600_000)
    run.send(2)
    eventually(lambda: ran == [2], "the other message is handled")
    assert not broker.get_declared_delay_queues()
    eventually(lambda: queue.stats().in_flight == 0, "the worker holds none")
    assert queue.stats().delayed == 1
    worker.stop()
    assert broker.get_queue_message_counts("default") == (0, 1, 0)


def test_messages_go_by_the_priority_of_the_message_then_of_its_actor(
    broker: ShmqBroker, run: Actor[..., Any], queue: shmq.Queue
) -> None:
    urgent = actor(broker, "urgent", lambda: None, broker_priority=9)
    run.send("none")
    run.send_with_options(args=("five",), broker_priority=5)
    urgent.send()
    assert [message.priority for message in queue.peek()] == [9, 5, 0]


def test_a_priority_that_the_queue_does_not_have_is_refused(
    run: Actor[..., Any], queue: shmq.Queue
) -> None:
    with pytest.raises(shmq.InvalidOption, match="priority=10 is out of range: 0 to 9"):
        run.send_with_options(broker_priority=10)


def test_messages_that_no_thread_has_begun_return_uncounted_when_a_worker_stops(
    broker: ShmqBroker, queue: shmq.Queue
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    waiting = actor(broker, "wait", wait)
    for _ in range(3):
        waiting.send()
    worker = working(broker)
    assert begun.wait(PATIENCE)
    eventually(lambda: queue.qsize() == 1, "one runs, one is leased ahead")
    stopped = threading.Thread(target=worker.stop)
    stopped.start()
    go_on.set()
    stopped.join(PATIENCE)

    assert queue.stats().in_flight == 0
    assert [message.delivery_count for message in queue.get_many(3, block=False)] in ([1, 1], [1])


def test_a_message_that_fails_for_good_is_a_dead_letter_that_says_which_actor(
    broker: ShmqBroker, queue: shmq.Queue, namespace: str
) -> None:
    def fail() -> None:
        raise ValueError("no")

    sent = actor(broker, "fail", fail, max_retries=0).send()
    worker = working(broker)
    broker.join("default", interval=5, timeout=60_000)
    worker.stop()

    with shmq.connect(namespace).queue("default.dlq") as letters:
        (letter,) = letters.peek()
        assert letter.dead is not None
        assert letter.dead.reason == "rejected"
        assert letter.headers == {"actor": "fail", "message_id": sent.message_id}
    broker.flush("default")
    assert broker.get_queue_message_counts("default") == (0, 0, 0)


def test_a_retry_is_a_new_message_whose_deliveries_count_from_one(
    broker: ShmqBroker, queue: shmq.Queue
) -> None:
    def fail() -> None:
        raise ValueError("no")

    actor(broker, "fail", fail, max_retries=1, min_backoff=1).send()
    worker = working(broker)
    eventually(lambda: queue.stats().put == 2, "it is retried")
    broker.join("default", interval=5, timeout=60_000)
    worker.stop()
    stats = queue.stats()
    assert (stats.put, stats.acked, stats.redelivered) == (2, 1, 0)


def test_what_is_not_of_dramatiq_is_a_dead_letter_and_holds_nothing_up(
    broker: ShmqBroker, run: Actor[..., Any], queue: shmq.Queue, ran: list[Any]
) -> None:
    queue.put(b"\x00", priority=9)
    queue.put("text", priority=9)
    run.send(1)
    worker = working(broker)
    eventually(lambda: ran == [1], "the message behind it is handled")
    worker.stop()
    assert broker.get_queue_message_counts("default") == (0, 0, 2)


def test_a_join_waits_for_a_message_on_its_way_to_the_dead_letter_queue(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = ShmqBroker(namespace)
    broker.declare_queue("default")
    with shmq.connect(namespace) as local:
        broker.enqueue(Message("default", "run", (), {}, {}))
        queue = local.queue("default")
        with monkeypatch.context() as patched:
            patched.setattr(DeadLetters, "move_dying", lambda *_: None)
            queue.get().reject()
            with pytest.raises(QueueJoinTimeout):
                broker.join("default", interval=1, timeout=10)
        queue.qsize()
        broker.join("default")
    assert broker.get_queue_message_counts("default") == (0, 0, 1)
    broker.close()


def test_a_consumer_holds_no_more_than_its_prefetch_and_any_thread_makes_room(
    broker: ShmqBroker, run: Actor[..., Any], queue: shmq.Queue
) -> None:
    for number in range(5):
        run.send(number)
    consumer = broker.consume("default", prefetch=2, timeout=10)
    held = [next(consumer), next(consumer)]
    assert next(consumer) is None
    assert queue.stats().in_flight == 2

    first = held[0]
    assert isinstance(first, LeasedMessage)
    thread = threading.Thread(target=consumer.ack, args=(first,))
    thread.start()
    thread.join()
    third = next(consumer)
    assert third is not None
    assert third.args == (2,)
    consumer.close()
    assert queue.stats().in_flight == 0


def test_a_message_that_is_settled_twice_or_is_of_no_consumer_changes_nothing(
    broker: ShmqBroker, run: Actor[..., Any], queue: shmq.Queue
) -> None:
    run.send(1)
    consumer = broker.consume("default", prefetch=2, timeout=10)
    message = next(consumer)
    assert message is not None
    consumer.ack(message)
    consumer.ack(message)
    consumer.nack(message)
    consumer.nack(dramatiq.MessageProxy(run.message()))
    consumer.close()
    assert (queue.stats().acked, queue.stats().dead_lettered) == (1, 0)


def test_a_deleted_queue_is_made_anew_by_the_next_message_and_by_the_worker(
    broker: ShmqBroker, run: Actor[..., Any], queue: shmq.Queue, namespace: str
) -> None:
    consumer = broker.consume("default", timeout=10)
    with shmq.connect(namespace) as local:
        local.delete_queue("default")
    with pytest.raises(ConnectionClosed):
        next(consumer)
    consumer.close()
    run.send(1)
    consumer = broker.consume("default", timeout=60_000)
    message = next(consumer)
    assert message is not None
    assert message.args == (1,)
    consumer.close()


def test_a_name_that_shmq_refuses_is_escaped(target: str, namespace: str) -> None:
    broker = ShmqBroker(target, prefix="büro/")
    broker.declare_queue("a:b")
    broker.enqueue(Message("a:b", "run", (), {}, {}))
    with shmq.connect(namespace) as local:
        assert local.queue("b:C3:BCro:2Fa:3Ab").qsize() == 1
    broker.close()


@pytest.mark.parametrize("length", [96, 97, 100, 101, 255, 256])
def test_a_queue_has_a_name_of_any_length_and_its_dead_letters(
    target: str, namespace: str, length: int
) -> None:
    name = "q" * length
    broker = ShmqBroker(target)
    broker.declare_queue(name)
    broker.enqueue(Message(name, "run", (), {}, {}))
    with shmq.connect(namespace) as local:
        local.queue(name if length <= 100 else shmq.escape_name(name)).get(timeout=0).reject()
        assert local.queue(shmq.escape_name(f"{name}.dlq")).qsize() == 1
    assert broker.get_queue_message_counts(name)[0] == 0
    broker.close()


def test_other_options_than_those_of_the_queue_are_refused_and_the_defaults_are_not(
    target: str, broker: ShmqBroker, run: Actor[..., Any]
) -> None:
    run.send(1)
    other = ShmqBroker(target, capacity=500, ttl=None)
    with pytest.raises(shmq.QueueExists, match="capacity=1000000, not 500"):
        other.enqueue(run.message(2))
    other.close()


def test_a_queue_that_was_never_declared_is_not_found(broker: ShmqBroker) -> None:
    for call in (broker.flush, broker.join, broker.get_queue_message_counts):
        with pytest.raises(QueueNotFound):
            call("nowhere")


def test_actors_are_declared_without_a_server_and_a_message_says_that_there_is_none() -> None:
    broker = ShmqBroker("shmq://127.0.0.1:1")
    nothing = actor(broker, "nothing", lambda: None)
    with pytest.raises(ConnectionClosed, match=r"127\.0\.0\.1:1"):
        nothing.send()
    with pytest.raises(ConnectionClosed, match=r"127\.0\.0\.1:1"):
        broker.consume("default")


# ---- rate limits ----


@pytest.fixture
def limits(target: str) -> Iterator[ShmqRateLimiterBackend]:
    backend = ShmqRateLimiterBackend(target)
    yield backend
    backend.close()


def test_the_last_party_of_a_barrier_wakes_the_others(limits: ShmqRateLimiterBackend) -> None:
    barrier = Barrier(limits, "barrier", ttl=3_600_000)
    assert barrier.create(parties=3)
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(barrier.wait, timeout=PATIENCE * 1000) for _ in range(3)]
        assert [each.result() for each in waiting] == [True] * 3


def test_as_many_may_hold_a_limit_at_once_as_it_says(limits: ShmqRateLimiterBackend) -> None:
    limiter = ConcurrentRateLimiter(limits, "concurrent", limit=4)
    asked = threading.Barrier(9)
    held: list[bool] = []

    def hold() -> None:
        with limiter.acquire(raise_on_failure=False) as acquired:
            held.append(bool(acquired))
            asked.wait(PATIENCE)  # none gives it back before all have asked

    with ThreadPoolExecutor(9) as threads:
        for each in [threads.submit(hold) for _ in range(9)]:
            each.result()
    assert sorted(held) == [False] * 5 + [True] * 4
    with limiter.acquire() as acquired:
        assert acquired


def test_calls_are_limited_in_each_bucket_and_in_every_window(
    limits: ShmqRateLimiterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 600.0
    clock = types.SimpleNamespace(time=lambda: now)
    monkeypatch.setattr("dramatiq.rate_limits.bucket.time", clock)
    monkeypatch.setattr("dramatiq.rate_limits.window.time", clock)
    bucket = BucketRateLimiter(limits, "bucket", limit=2, bucket=60_000)
    window = WindowRateLimiter(limits, "window", limit=2, window=60)

    def taken(limiter: RateLimiter) -> int:
        found = 0
        for _ in range(4):
            with limiter.acquire(raise_on_failure=False) as acquired:
                found += bool(acquired)
        return found

    now = 630.0
    assert (taken(bucket), taken(window)) == (2, 2)
    now = 659.0
    assert (taken(bucket), taken(window)) == (0, 0)
    now = 661.0
    assert (taken(bucket), taken(window)) == (2, 0)
    now = 690.0
    assert (taken(bucket), taken(window)) == (0, 2)


@pytest.mark.prove
def test_a_worker_that_is_full_keeps_its_connection_and_its_leases(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmq.extras.dramatiq.consumer.SILENCE", 0.1)
    idle = 2.0
    with serve(namespace, limits={"idle": idle}) as server:
        broker = ShmqBroker(server.url)
        broker.enqueue(Message("default", "run", (), {}, {}))
        consumer = broker.consume("default", prefetch=1, timeout=50)
        message = next(consumer)
        assert message is not None
        until = time.monotonic() + 2 * idle
        while time.monotonic() < until:
            assert next(consumer) is None
        consumer.ack(message)
        consumer.close()
        with shmq.connect(namespace) as local:
            stats = local.queue("default").stats()
        assert (stats.acked, stats.redelivered) == (1, 0)
        broker.close()


def test_gevent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = types.SimpleNamespace(is_module_patched=lambda name: name == "threading")
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched)
    with pytest.raises(RuntimeError, match="would stop all greenlets of gevent"):
        ShmqBroker()
