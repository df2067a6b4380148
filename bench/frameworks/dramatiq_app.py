"""A dramatiq broker with one actor; its worker is told the broker by the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq

from bench.frameworks.ledger import note

BROKER = "BENCH_BROKER"


def broker_at(url: str) -> dramatiq.Broker:
    """The broker of the URL's scheme."""
    if url.startswith("redis"):
        from dramatiq.brokers.redis import RedisBroker

        return RedisBroker(url=url)
    if url.startswith("amqp"):
        from dramatiq.brokers.rabbitmq import RabbitmqBroker

        return RabbitmqBroker(url=url)
    from shmq.extras.dramatiq import ShmqBroker

    return ShmqBroker(url)


def made(url: str) -> Any:
    """The actor ``note(number)`` on that broker."""
    return dramatiq.actor(broker=broker_at(url), actor_name="note", max_retries=0)(note)


@contextlib.contextmanager
def sender(url: str) -> Iterator[Callable[[range], None]]:
    """A function that sends the tasks of those numbers."""
    actor = made(url)

    def send(numbers: range) -> None:
        for number in numbers:
            actor.send(number)

    yield send
    actor.broker.close()


if BROKER in os.environ:
    actor = made(os.environ[BROKER])
    broker = actor.broker
