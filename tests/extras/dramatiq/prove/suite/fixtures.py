"""The fixtures of dramatiq's own tests, with shmq in place of the stub, Redis and RabbitMQ.

`test_dramatiq.py` copies this module as the ``conftest.py`` beside those tests.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import dramatiq
import pytest
from dramatiq import Broker, Message, MessageProxy, Middleware, Worker
from dramatiq.common import q_name

import shmq
from shmq.extras.dramatiq import ShmqBroker, ShmqRateLimiterBackend, ShmqResultBackend

from .common import worker

TARGET = os.environ["SHMQ_SUITE_TARGET"]


class Failures(Middleware):
    """Keeps the errors of dead letters, as StubBroker does.

    An error is kept before its message leaves the queue: a join that sees the queue empty has it.
    """

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def before_nack(self, broker: Broker, message: MessageProxy) -> None:
        """Keep the error."""
        if message._exception is not None:
            self.errors.append(message._exception)


class SuiteBroker(ShmqBroker):
    """ShmqBroker, whose join takes what that of any other broker takes.

    The worker is in the same process, so that a join can raise the error of an actor.
    """

    def __init__(self, target: str, *, fail_fast: bool) -> None:
        super().__init__(target)
        self.failures = Failures()
        self.add_middleware(self.failures)
        self.fail_fast = fail_fast

    def join(
        self,
        queue_name: str,
        *,
        timeout: int | None = None,
        fail_fast: bool | None = None,
        **_: Any,
    ) -> None:
        super().join(queue_name, interval=20, timeout=timeout)
        errors, self.failures.errors = self.failures.errors, []
        if errors and (self.fail_fast if fail_fast is None else fail_fast):
            raise errors[0]

    @property
    def client(self) -> SuiteClient:
        """What the tests of Redis look into its keys with."""
        return SuiteClient(self)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        return super().enqueue(
            message.copy(options={"redis_message_id": str(uuid4())}), delay=delay
        )


class SuiteClient:
    """Answers the two commands with which the tests read the messages of a key of Redis."""

    def __init__(self, broker: SuiteBroker) -> None:
        self._broker = broker

    def zrangebyscore(self, key: str, *_: object) -> list[bytes]:
        """The ids of dead letters; the key ends with ``.XQ``."""
        dead = self._broker._shared.dead_letters(q_name(key.removeprefix("dramatiq:")))
        assert dead is not None
        return _ids(dead)

    def lrange(self, key: str, *_: object) -> list[bytes]:
        """The ids of the messages of a queue."""
        return _ids(self._broker._shared.queue(key.removeprefix("dramatiq:")))


def _ids(queue: shmq.Queue) -> list[bytes]:
    return [
        Message.decode(message.body).options["redis_message_id"].encode()
        for message in queue.peek(100)
    ]


def _clean() -> None:
    with shmq.connect(TARGET) as broker:
        for name in reversed(broker.queue_names()):
            broker.delete_queue(name)


@contextlib.contextmanager
def _broker(*, fail_fast: bool) -> Iterator[SuiteBroker]:
    """A broker that is dramatiq's global one; its queues are deleted at the end."""
    broker = SuiteBroker(TARGET, fail_fast=fail_fast)
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    try:
        yield broker
    finally:
        broker.close()
        _clean()


@pytest.fixture
def stub_broker() -> Iterator[SuiteBroker]:
    """A broker whose join raises the error of an actor."""
    with _broker(fail_fast=True) as broker:
        yield broker


@pytest.fixture
def stub_worker(stub_broker: SuiteBroker) -> Iterator[Worker]:
    """A worker of the broker."""
    with worker(stub_broker, worker_timeout=100, worker_threads=32) as started:
        yield started


@pytest.fixture
def redis_broker() -> Iterator[SuiteBroker]:
    """A broker."""
    with _broker(fail_fast=False) as broker:
        yield broker


@pytest.fixture
def redis_worker(redis_broker: SuiteBroker) -> Iterator[Worker]:
    """A worker of the broker."""
    with worker(redis_broker, worker_timeout=100, worker_threads=32) as started:
        yield started


rabbitmq_broker = pytest.fixture(lambda redis_broker: redis_broker)
rabbitmq_worker = pytest.fixture(lambda redis_worker: redis_worker)


@pytest.fixture
def result_backend() -> Iterator[ShmqResultBackend]:
    """A result backend."""
    backend = ShmqResultBackend(TARGET)
    yield backend
    backend.close()


redis_result_backend = pytest.fixture(lambda result_backend: result_backend)


@pytest.fixture
def rate_limiter_backend() -> Iterator[ShmqRateLimiterBackend]:
    """A rate limiter backend with a new table."""
    table = f"limits-{uuid4().hex}"
    backend = ShmqRateLimiterBackend(TARGET, table=table)
    yield backend
    backend.close()
    with shmq.connect(TARGET) as broker:
        broker.delete_table(table)
