"""Puts messages, and asks requests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable
from faststream.exceptions import IncorrectState
from faststream.response.publish_type import PublishType

import shmq
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.faststream.command import ShmqPublishCommand
from shmq.extras.faststream.config import ShmqQueue
from shmq.extras.faststream.parser import CORRELATION, ShmqParser, stored

if TYPE_CHECKING:
    from shmq.extras.faststream.config import ShmqBrokerConfig

log = logging.getLogger("shmq")


class ShmqProducer(ProducerProto[ShmqPublishCommand]):
    """Puts what a command carries into the queue that it names."""

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        own = ShmqParser(lambda: False)  # a reply is settled when it comes
        self._parser = ParserComposition(parser, own.parse_message)
        self._decoder = ParserComposition(decoder, own.decode_message)
        self.codec: CodecProto = DefaultCodec()
        self._config: ShmqBrokerConfig | None = None

    def connect(self, config: ShmqBrokerConfig, codec: CodecProto) -> None:
        """Use the connection and the serializer of this configuration."""
        self._config = config
        self.codec = codec

    @property
    def config(self) -> ShmqBrokerConfig:
        """The configuration. Raises IncorrectState if the broker is not connected."""
        if self._config is None:
            raise IncorrectState("the broker is not connected: call connect() or start() first")
        return self._config

    async def publish(self, cmd: ShmqPublishCommand) -> shmq.Put | None:
        """Put the message; None: it is a reply that nobody waits for any more."""
        put = await self._arguments(cmd, cmd.body)
        is_reply = cmd.publish_type is PublishType.REPLY
        queue = ShmqQueue.of(cmd.destination) if is_reply else self._queue(cmd)
        try:
            return await self._put(queue, put, cmd.timeout, make=not is_reply)
        except (shmq.NoSuchQueue, shmq.QueueDeleted) as error:
            if not is_reply:
                raise
            log.warning("a reply is dropped, its asker is gone: %s", error)
            return None

    def _queue(self, cmd: ShmqPublishCommand) -> ShmqQueue:
        return ShmqQueue(cmd.destination, **cmd.queue_options)

    async def _put(
        self, queue: ShmqQueue, put: dict[str, Any], timeout: float | None, *, make: bool
    ) -> shmq.Put:
        queues = self.config.queues
        try:
            return await (await queues.of(queue, make=make)).aput(timeout=timeout, **put)
        except shmq.QueueDeleted:  # since it was opened: a new one may be there, or is made
            queues.forget(queue)
            return await (await queues.of(queue, make=make)).aput(timeout=timeout, **put)

    async def request(self, cmd: ShmqPublishCommand) -> shmq.Message:
        """Put the message and wait for its reply.

        Raises :class:`~shmq.NoReply`, which is a TimeoutError, and :class:`~shmq.RequestFailed`.
        """
        put = await self._arguments(cmd, cmd.body)
        put.pop("reply_to", None)
        known_as = put.pop("correlation", None)
        if known_as is not None:
            put["headers"][CORRELATION] = known_as
        queue = await self.config.queues.of(self._queue(cmd), make=True)
        return await self.config.client.arequest(queue, put.pop("body"), cmd.timeout, **put)

    async def publish_batch(self, cmd: ShmqPublishCommand) -> int:
        """Put the messages in order; returns how many.

        Raises :class:`~shmq.PutsRefused` if some were refused: it says which.
        """
        puts = [await self._arguments(cmd, body) for body in cmd.batch_bodies]
        queue = await self.config.queues.of(self._queue(cmd), make=True)
        return await run_blocking(_put_all, queue, puts)

    async def _arguments(self, cmd: ShmqPublishCommand, value: Any) -> dict[str, Any]:
        """The arguments of a put of the value."""
        payload, media = await self.codec.encode(value, self.config.fd_config._serializer)
        body, codec, headers = stored(payload, media, cmd.headers)
        correlation = cmd.correlation_id
        if cmd.asked_as is not None and cmd.asked_as != correlation:
            headers[CORRELATION], correlation = correlation, cmd.asked_as
        put: dict[str, Any] = {"body": body, "codec": codec, "headers": headers}
        if correlation:
            put["correlation"] = correlation
        if cmd.reply_to:
            put["reply_to"] = ShmqQueue.of(cmd.reply_to).shared_name
        return put | {name: value for name, value in cmd.options.items() if value is not None}


def _put_all(queue: shmq.Queue, puts: list[dict[str, Any]]) -> int:
    with queue.pipeline() as pipeline:
        for put in puts:
            pipeline.put(put.pop("body"), **put)
        pipeline.flush()
        return pipeline.taken
