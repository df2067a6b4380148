"""The broker: one connection, with its subscribers and publishers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit, urlunsplit

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec
from faststream.specification.schema.extra import Tag, TagDict

import shmq
from shmq.api.names import chosen_namespace, is_url
from shmq.api.options import QueueOptions
from shmq.client.shared import loop_timer
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.faststream.command import PutOptions, ShmqPublishCommand
from shmq.extras.faststream.config import ShmqBrokerConfig, ShmqQueue, logger_state
from shmq.extras.faststream.message import ShmqMessage
from shmq.extras.faststream.producer import ShmqProducer
from shmq.extras.faststream.registrator import ShmqRegistrator

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class ShmqBroker(ShmqRegistrator, BrokerUsecase[shmq.Message, shmq.Broker, ShmqBrokerConfig]):
    """A broker of FastStream over the queues of a namespace, or of a server.

    ``target``, ``token`` and ``tls`` are those of :func:`shmq.connect`. A queue that does not exist
    is made with ``queue_options``, unless a :class:`ShmqQueue` says otherwise. The other arguments
    are those of FastStream's brokers. Raises :class:`~shmq.InvalidOption`.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
        queue_options: Mapping[str, Any] | None = None,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any]] = (),
        routers: Iterable[ShmqRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        QueueOptions.for_queue("any", dict(queue_options or {}))
        super().__init__(
            target=target,
            token=token,
            tls=tls,
            routers=routers,
            config=ShmqBrokerConfig(
                queue_options=dict(queue_options or {}),
                producer=ShmqProducer(parser, decoder),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=logger_state(logger=logger, log_level=log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=_make_specification(
                specification_url or _format_address(target), description, tags
            ),
        )

    async def _connect(self) -> shmq.Broker:
        made = await run_blocking(
            shmq.connect,
            self._connection_kwargs["target"],
            token=self._connection_kwargs["token"],
            tls=self._connection_kwargs["tls"],
        )
        self.config.broker_config.connect(made)
        return made

    async def start(self) -> None:
        """Connect, and start every subscriber."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Let handlers come to their end, and close the connection."""
        await super().stop(exc_type, exc_val, exc_tb)
        connection, self._connection = self._connection, None
        self.config.broker_config.disconnect()
        if connection is not None:
            await run_blocking(connection.close)

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether the namespace, or the server, answers within ``timeout`` seconds."""
        if self._connection is None:
            return False
        with contextlib.suppress(shmq.ShmqError, OSError):
            async with loop_timer.limit(timeout):
                await run_blocking(self._connection.queue_names)
                return True
        return False

    async def publish(
        self,
        message: Any = None,
        queue: ShmqQueue | str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        **options: Unpack[PutOptions],
    ) -> shmq.Put:
        """Put one message into a queue, which is made if it does not exist.

        ``timeout`` is how long to wait for room; the further properties are those of
        :meth:`shmq.Queue.put`, which also says what is raised.
        """
        cmd = self._command(PublishType.PUBLISH, (message,), queue, options)
        cmd.add_headers(dict(headers or {}))
        cmd.correlation_id = correlation_id or cmd.correlation_id
        cmd.reply_to, cmd.timeout = reply_to, timeout
        put: shmq.Put = await super()._basic_publish(cmd, producer=self._producer)
        return put

    async def publish_batch(
        self,
        *messages: Any,
        queue: ShmqQueue | str,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[PutOptions],
    ) -> int:
        """Put the messages in order; returns how many.

        A full queue refuses them, or is waited for, as its ``overflow`` says. Raises
        :class:`~shmq.PutsRefused` if some were refused.
        """
        cmd = self._command(PublishType.PUBLISH, messages, queue, options)
        cmd.add_headers(dict(headers or {}))
        cmd.correlation_id = correlation_id or cmd.correlation_id
        cmd.reply_to = reply_to
        count: int = await self._basic_publish_batch(cmd, producer=self._producer)
        return count

    async def request(  # type: ignore[override]
        self,
        message: Any = None,
        queue: ShmqQueue | str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float | None = 30.0,
        **options: Unpack[PutOptions],
    ) -> ShmqMessage:
        """Put a message, and return the reply of its handler.

        Raises :class:`~shmq.NoReply`, a TimeoutError, if none came within ``timeout`` seconds.
        """
        cmd = self._command(PublishType.REQUEST, (message,), queue, options)
        cmd.add_headers(dict(headers or {}))
        cmd.correlation_id = correlation_id or cmd.correlation_id
        cmd.timeout = timeout
        reply: ShmqMessage = await super()._basic_request(cmd, producer=self._producer)
        return reply

    def _command(
        self,
        kind: PublishType,
        messages: tuple[Any, ...],
        queue: ShmqQueue | str,
        options: PutOptions,
    ) -> ShmqPublishCommand:
        named = ShmqQueue.of(queue)
        cmd = ShmqPublishCommand(
            *(messages or (None,)),
            queue=named.name,
            correlation_id=self.config.id_generator(),
            options=options,
            _publish_type=kind,
        )
        cmd.queue_options = named.options
        return cmd


def _make_specification(
    url: str, description: str | None, tags: Iterable[Tag | TagDict]
) -> BrokerSpec:
    """What the AsyncAPI page says of the broker."""
    return BrokerSpec(
        url=[url],
        protocol=urlsplit(url).scheme,
        protocol_version=None,
        description=description,
        tags=tags,
        security=None,
    )


def _format_address(target: str | None) -> str:
    """The address on the AsyncAPI page, without a password."""
    if target is not None and is_url(target):
        parts = urlsplit(target)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return f"shmq://localhost/{chosen_namespace(target)}"
