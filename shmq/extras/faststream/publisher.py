"""Publishes to one queue: what handlers return, and what an application says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack, cast

from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.producer import ProducerProto
from faststream._internal.types import PublisherMiddleware
from faststream.message import StreamMessage
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand

import shmq
from shmq.extras.faststream.command import PutOptions, ShmqPublishCommand
from shmq.extras.faststream.config import ShmqBrokerConfig, ShmqPublisherConfig, ShmqQueue
from shmq.extras.faststream.message import ShmqMessage


class ReplyPublisher(FakePublisher):
    """Sends the reply to a request, or to a message with ``reply_to``."""

    def __init__(self, producer: ProducerProto[Any], message: StreamMessage[Any]) -> None:
        super().__init__(producer=producer)
        raw = message.raw_message
        first = raw[0] if isinstance(raw, list) else raw
        self._reply_to = message.reply_to
        self._asked_as: str | None = first.correlation

    def patch_command(self, cmd: PublishCommand) -> ShmqPublishCommand:
        """The command as one to the queue that the message names."""
        made = ShmqPublishCommand.from_cmd(super().patch_command(cmd))
        made.destination = self._reply_to
        made.asked_as = self._asked_as
        return made


class ShmqPublisher(PublisherUsecase):
    """Puts messages into one queue."""

    _outer_config: ShmqBrokerConfig

    def __init__(
        self, config: ShmqPublisherConfig, specification: PublisherSpecification[Any, Any]
    ) -> None:
        super().__init__(config, specification)
        self._declared = config.queue
        self._headers = dict(config.headers)
        self._reply_to = config.reply_to
        self._batch = config.batch
        self._options = dict(config.options)

    @property
    def queue(self) -> ShmqQueue:
        """The queue that it puts into, with the prefixes of its routers."""
        return self._declared.named(self._outer_config.prefix)

    async def publish(
        self,
        *messages: Any,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        **options: Unpack[PutOptions],
    ) -> shmq.Put | int | None:
        """Put the message; a publisher of batches puts all of them, and returns how many."""
        cmd = self._make_command(
            PublishType.PUBLISH, messages, headers, correlation_id, reply_to, timeout, options
        )
        put = self._basic_publish_batch if self._batch else self._basic_publish
        found: shmq.Put | int | None = await put(
            cmd, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return found

    async def request(
        self,
        message: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float | None = 30.0,
        **options: Unpack[PutOptions],
    ) -> ShmqMessage:
        """Put the message and wait for the reply. Raises :class:`~shmq.NoReply`."""
        cmd = self._make_command(
            PublishType.REQUEST, (message,), headers, correlation_id, "", timeout, options
        )
        reply: ShmqMessage = await self._basic_request(cmd, producer=self._outer_config.producer)
        return reply

    def _make_command(
        self,
        kind: PublishType,
        messages: tuple[Any, ...],
        headers: Mapping[str, Any] | None,
        correlation_id: str | None,
        reply_to: str,
        timeout: float | None,
        options: PutOptions,
    ) -> ShmqPublishCommand:
        cmd = ShmqPublishCommand(
            *(messages or (None,)),
            queue=self.queue.name,
            headers={**self._headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or ("" if kind is PublishType.REQUEST else self._reply_to),
            timeout=timeout,
            options=cast("PutOptions", {**self._options, **options}),
            _publish_type=kind,
        )
        cmd.queue_options = self.queue.options
        return cmd

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        """Put what a handler returned."""
        made = ShmqPublishCommand.from_cmd(cmd, batch=self._batch)
        made.destination, made.queue_options = self.queue.name, self.queue.options
        made.reply_to = made.reply_to or self._reply_to
        made.add_headers(self._headers, override=False)
        made.options = cast("PutOptions", {**self._options, **made.options})
        put = self._basic_publish_batch if self._batch else self._basic_publish
        await put(made, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)
