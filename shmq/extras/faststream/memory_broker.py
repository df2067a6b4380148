"""The broker of tests: messages go from publishers to handlers in memory, without a queue."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast
from unittest.mock import MagicMock

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

import shmq
from shmq.api.options import Confirm
from shmq.client.shared import loop_timer
from shmq.extras.faststream.broker import ShmqBroker
from shmq.extras.faststream.command import ShmqPublishCommand
from shmq.extras.faststream.parser import ShmqParser
from shmq.extras.faststream.producer import ShmqProducer
from shmq.extras.faststream.publisher import ShmqPublisher
from shmq.extras.faststream.subscriber import ShmqSubscriber
from shmq.model.codec.codecs import decode_body, encode_body


class TestShmqBroker(TestBroker[ShmqBroker, EnterType], broker=ShmqBroker):
    """Runs the handlers of brokers in memory: ``async with TestShmqBroker(broker) as br``.

    A message that is published is handled before ``publish`` returns, by the first subscriber of
    its queue; an exception of the handler is raised there. With ``with_real`` the queues are real.
    """

    def create_publisher_fake_subscriber(
        self, broker: ShmqBroker, publisher: ShmqPublisher
    ) -> tuple[ShmqSubscriber, bool]:
        """The subscriber that gets what the publisher publishes, and whether it is a real one."""
        for found in _list_subscribers(self.brokers):
            if found.queue.name == publisher.queue.name:
                return found, True
        return broker.subscriber(publisher.queue, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: ShmqBroker) -> Generator[None, None, None]:
        config = broker.config.broker_config
        with change_producer(config, FakeProducer(broker, self.brokers)):
            config.reads = False
            try:
                yield
            finally:
                config.reads = True

    async def _fake_connect(self, *_: Any, **__: Any) -> Any:
        return MagicMock(spec=shmq.Broker)


class FakeProducer(ShmqProducer):
    """Hands each message to the subscriber of its queue."""

    def __init__(self, broker: ShmqBroker, brokers: Sequence[ShmqBroker]) -> None:
        super().__init__(None, None)
        own = ShmqParser(lambda: False)
        self._parser = ParserComposition(broker._parser, own.parse_message)
        self._decoder = ParserComposition(broker._decoder, own.decode_message)
        self._brokers = brokers
        self.connect(broker.config.broker_config, broker.config.broker_codec or DefaultCodec())

    async def publish(self, cmd: ShmqPublishCommand) -> Any:
        """Let the subscriber handle the message."""
        message = FakeMessage(**await self._arguments(cmd, cmd.body))
        for subscriber in self._find_readers(cmd.destination):
            await self._handle(subscriber, [message])
        return message

    async def publish_batch(self, cmd: ShmqPublishCommand) -> int:
        """Let the subscriber handle the messages: all of them together, if it takes batches."""
        messages: list[shmq.Message] = [
            FakeMessage(**await self._arguments(cmd, body)) for body in cmd.batch_bodies
        ]
        for subscriber in self._find_readers(cmd.destination):
            await self._handle(subscriber, messages)
        return len(messages)

    async def request(self, cmd: ShmqPublishCommand) -> shmq.Message:
        """Let the subscriber handle the message, and return its reply."""
        message = FakeMessage(**await self._arguments(cmd, cmd.body))
        for subscriber in self._find_readers(cmd.destination):
            async with loop_timer.limit(cmd.timeout):
                found = await self._handle(subscriber, [message])
            reply = ShmqPublishCommand.from_cmd(found.as_publish_command())
            return FakeMessage(**await self._arguments(reply, reply.body))
        raise SubscriberNotFound(f"no subscriber reads queue {cmd.destination!r}")

    def _find_readers(self, name: str) -> list[ShmqSubscriber]:
        """The first subscriber of the queue: one consumer gets a message."""
        return [one for one in _list_subscribers(self._brokers) if one.queue.name == name][:1]

    async def _handle(self, subscriber: ShmqSubscriber, messages: list[shmq.Message]) -> Any:
        if subscriber.takes_batches:
            return await subscriber.process_message(cast("Any", messages))
        for message in messages:
            found = await subscriber.process_message(message)
        return found


def _list_subscribers(brokers: Sequence[ShmqBroker]) -> Iterator[ShmqSubscriber]:
    return (cast("ShmqSubscriber", one) for broker in brokers for one in broker.subscribers)


_sequences: Final = itertools.count(1)


@dataclasses.dataclass(kw_only=True, eq=False)
class FakeMessage(shmq.Message):
    """One message of the arguments of a put; settling it does nothing but mark it so."""

    body: Any = b""
    codec: str = "bytes"
    headers: Any = None
    priority: int = 1
    # properties of a fake message: made by tools/options.py
    group: str | None = None
    delay: float | dt.timedelta | None = None
    deliver_at: float | dt.datetime | None = None
    ttl: float | dt.timedelta | None = None
    dedupe_id: str | None = None
    reply_to: str | None = None
    correlation: str | None = None
    confirm: Confirm | None = None
    # end
    dead: None = None
    last_error: None = None
    delivery_count: int = 1
    receipt: int = 0
    settled: bool = False
    #: Of its put.
    duplicate: bool = False
    sequence: int = 0

    def __post_init__(self) -> None:
        raw, number = encode_body(self.body, self.codec)
        self._raw = bytes(raw)
        self.body = decode_body(self._raw, number, self.codec)
        self.headers = self.headers or {}
        self.sequence = self.receipt = next(_sequences)

    @property
    def properties(self) -> Mapping[str, Any]:
        return {"headers": self.headers}

    @property
    def view(self) -> memoryview:
        return memoryview(self._raw)

    def readinto(self, buffer: Any) -> int:
        memoryview(buffer)[: len(self._raw)] = self._raw
        return len(self._raw)

    def ack(self) -> None:
        self.settled = True

    def nack(
        self,
        delay: float | None = None,
        *,
        counted: bool = True,
        error: BaseException | shmq.Failure | str | None = None,
    ) -> None:
        del delay, counted, error
        self.settled = True

    def reject(self, reason: BaseException | shmq.Failure | str | None = None) -> None:
        del reason
        self.settled = True

    def extend(self, seconds: float) -> None:
        """Do nothing: it has no lease."""
