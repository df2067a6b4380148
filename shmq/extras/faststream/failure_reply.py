"""Replies to a request whose handler has failed, so that its caller does not wait in vain."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Protocol

from faststream import BaseMiddleware
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage
from faststream.message import StreamMessage
from faststream.message.message import AckStatus
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand

import shmq
from shmq.client.shared.rpc_server import failure_reply
from shmq.extras.faststream.config import ShmqBrokerConfig, ShmqQueue

log = logging.getLogger("shmq")

#: How long to wait for room for a reply, in seconds, if its caller does not read.
_PATIENCE: Final = 1.0


class Policy(Protocol):
    """What a subscriber does with a message whose handler raises."""

    ack_policy: AckPolicy

    @property
    def max_deliveries(self) -> int | None:
        """How often a message of its queue is delivered; None: without a limit."""


class FailureReplies:
    """Makes the middleware of each message of a subscriber; the outermost one, for it sees all."""

    def __init__(self, subscriber: Policy, config: ShmqBrokerConfig) -> None:
        self._subscriber = subscriber
        self._config = config

    def __call__(self, message: Any, /, **more: Any) -> _FailureReply:
        """The middleware of one message, or of one batch."""
        return _FailureReply(self._subscriber, self._config, message, **more)


class _FailureReply(BaseMiddleware):
    """Replies with the error if processing ends with one, and the message is not processed again.

    The reply is that of ``Broker.serve``: it raises RequestFailed at the caller.
    """

    def __init__(
        self, subscriber: Policy, config: ShmqBrokerConfig, message: Any, /, **more: Any
    ) -> None:
        super().__init__(message, **more)
        self._subscriber = subscriber
        self._config = config
        self._parsed: StreamMessage[Any] | None = None
        self._has_replied = False

    async def consume_scope(
        self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]
    ) -> Any:
        """Note the message, which knows whether it was settled."""
        self._parsed = msg
        return await call_next(msg)

    async def publish_scope(
        self, call_next: Callable[[Any], Awaitable[Any]], cmd: PublishCommand
    ) -> Any:
        """Note that a reply was sent."""
        published = await call_next(cmd)
        self._has_replied = self._has_replied or cmd.publish_type is PublishType.REPLY
        return published

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool | None:
        """Reply with the error, before the message is settled."""
        del exc_type, exc_tb
        if isinstance(exc_val, Exception) and not self._has_replied:
            received: Any = self.msg
            messages = received if isinstance(received, list) else [received]
            for message in messages:
                if message.reply_to and self._is_final(message, exc_val):
                    await self._reply(message, exc_val)
        return False

    def _is_final(self, message: shmq.Message, error: Exception) -> bool:
        """Whether the message is not delivered again."""
        policy = self._subscriber.ack_policy
        committed = self._parsed.committed if self._parsed else None
        if isinstance(error, SkipMessage):
            return message.settled and committed is not AckStatus.NACKED
        settles = isinstance(error, AckMessage | RejectMessage)
        if settles or committed in (AckStatus.ACKED, AckStatus.REJECTED):
            return True
        returns = committed is AckStatus.NACKED or isinstance(error, NackMessage)
        if returns or policy is AckPolicy.NACK_ON_ERROR:
            most = self._subscriber.max_deliveries
            return most is not None and message.delivery_count >= most
        return policy is not AckPolicy.MANUAL

    async def _reply(self, message: shmq.Message, error: Exception) -> None:
        text, headers = failure_reply(error)
        name, correlation = str(message.reply_to), message.correlation
        try:
            queue = await self._config.queues.of(ShmqQueue.of(name), make=False)
            await queue.aput(text, timeout=_PATIENCE, correlation=correlation, headers=headers)
        except (shmq.ShmqError, OSError) as problem:
            log.warning("the error of a request cannot be sent to its caller: %s", problem)
