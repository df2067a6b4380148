"""Which values, sizes and times dramatiq's users may rely on; the others fail at once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq import Actor, Message, Worker
from dramatiq.results import ResultFailure, Results, ResultTimeout

import shmq
from shmq.extras.dramatiq import ShmqBroker, ShmqRateLimiterBackend, ShmqResultBackend
from tests.support.waiting import PATIENCE


class App:
    """A broker with results and a worker of it."""

    def __init__(self, target: str) -> None:
        self.results = ShmqResultBackend(target)
        self.broker = ShmqBroker(target)
        self.broker.add_middleware(Results(backend=self.results))

    def actor(self, work: Callable[..., Any], **options: Any) -> Actor[..., Any]:
        given = {"store_results": True, "max_retries": 0, "actor_name": "run", **options}
        return dramatiq.actor(broker=self.broker, **given)(work)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        worker = Worker(self.broker, worker_timeout=50, worker_threads=1)
        worker.start()
        try:
            yield
        finally:
            worker.stop()

    def result(self, message: Message[Any]) -> Any:
        with self.working():
            return self.results.get_result(message, block=True, timeout=int(PATIENCE * 1000))

    def failure(self, message: Message[Any]) -> str:
        with pytest.raises(ResultFailure) as failed:
            self.result(message)
        return f"{failed.value.orig_exc_type}: {failed.value.orig_exc_msg}"


@pytest.fixture
def app(target: str) -> Iterator[App]:
    app = App(target)
    dramatiq.set_broker(app.broker)
    yield app
    app.broker.close()
    app.results.close()


@pytest.mark.parametrize(
    "value",
    [2**70, -(2**70), math.inf, -math.inf, "\0 订单", "\ud800", [1, {"a": None}]],
    ids=ascii,
)
def test_a_value_of_json_is_an_argument_and_a_result(app: App, value: Any) -> None:
    assert app.result(app.actor(lambda given: given).send(value)) == value


@pytest.mark.parametrize("value", [{1}, b"x", object()], ids=["set", "bytes", "object"])
def test_what_json_does_not_hold_is_an_error_of_the_sender(app: App, value: Any) -> None:
    run = app.actor(lambda given: None)
    with pytest.raises(TypeError, match="not JSON serializable"):
        run.send(value)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda: {1}, "TypeError: Object of type set is not JSON serializable"),
        (lambda: "x" * (17 << 20), "MessageTooLarge: the value has"),
    ],
    ids=["set", "17 MiB"],
)
def test_a_result_that_cannot_be_stored_is_an_error_of_the_caller(
    app: App, work: Callable[[], Any], reason: str
) -> None:
    failure = app.failure(app.actor(work).send())
    expected = f"the task has run, but its result cannot be stored: {reason}"
    assert failure.startswith(f"ResultNotStored: {expected}")


def test_an_error_that_is_too_large_and_a_time_that_is_none_are_errors_of_the_caller(
    app: App,
) -> None:
    def fail() -> None:
        raise ValueError("x" * (17 << 20))

    assert "MessageTooLarge" in app.failure(app.actor(fail).send())
    timeless = app.actor(lambda: 1, actor_name="timeless", result_ttl=-1)
    assert "ttl=" in app.failure(timeless.send())


def test_an_actor_that_no_worker_has_is_an_error_of_the_caller(app: App) -> None:
    app.broker.declare_queue("default")
    sent = app.broker.enqueue(Message("default", "none", (), {}, {}))
    assert app.failure(sent).startswith("ActorNotFound: the workers of queue 'default' do not")


@pytest.mark.parametrize("body", [b"\x00", b"5", b"{}", {"queue_name": 1}], ids=ascii)
@pytest.mark.parametrize("stored", [True, False])
def test_a_message_that_no_worker_can_read_is_an_error_of_the_caller(
    app: App, namespace: str, body: Any, stored: bool
) -> None:
    run = app.actor(lambda: 1, store_results=stored)
    assert app.broker.get_queue_message_counts("default") == (0, 0, 0)
    message = run.message()
    with shmq.connect(namespace) as local, local.queue("default") as queue:
        headers = {"actor": "run", "message_id": message.message_id}
        queue.put(body, headers=headers, priority=9)
    known = app.actor(lambda: 2, actor_name="known")
    assert app.result(known.send()) == 2
    with pytest.raises(ResultFailure if stored else ResultTimeout):
        app.results.get_result(message, block=True, timeout=0)
    assert app.broker.get_queue_message_counts("default") == (0, 0, 1)


@pytest.mark.parametrize("given", [None, 0, 9])
def test_a_priority_within_its_range_is_used(app: App, namespace: str, given: Any) -> None:
    app.actor(lambda: None, broker_priority=given).send()
    app.actor(lambda: None, actor_name="b").send_with_options(broker_priority=given)
    with shmq.connect(namespace) as local:
        assert [each.priority for each in local.queue("default").peek(2)] == [given or 0] * 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (-1, "priority=-1 is out of range: 0 to 9"),
        (10, "priority=10 is out of range: 0 to 9"),
        (2.5, "broker_priority=2.5 must be a whole number"),
        ("x", "broker_priority='x' must be a whole number"),
    ],
    ids=str,
)
def test_a_priority_out_of_range_is_an_error_of_the_sender(
    app: App, given: Any, reason: str
) -> None:
    run = app.actor(lambda: None)
    with pytest.raises((TypeError, shmq.InvalidOption), match=reason):
        run.send_with_options(broker_priority=given)


@pytest.mark.parametrize("delay", [0, -5, None])
def test_a_message_without_a_delay_is_delivered_at_once(app: App, delay: int | None) -> None:
    run = app.actor(lambda: 1)
    assert app.result(run.send_with_options(delay=delay)) == 1


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_wait_without_time_looks_once(app: App, timeout: int) -> None:
    with pytest.raises(ResultTimeout):
        app.results.get_result(app.actor(lambda: 1).message(), block=True, timeout=timeout)


def test_results_and_limits_go_into_new_tables_if_theirs_were_deleted(
    app: App, target: str, namespace: str
) -> None:
    limits = ShmqRateLimiterBackend(target)
    run = app.actor(lambda: 1)
    assert app.result(run.send()) == 1
    assert limits.add("a", 1, 1000)
    with shmq.connect(namespace) as local:
        for name in ("dramatiq-results", "dramatiq-limits"):
            local.delete_table(name)
    assert app.result(run.send()) == 1
    assert limits.incr("a", 1, 1, 1000)
    limits.close()
