"""Iterators over the messages of a queue, and over their bodies, that are traced."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from shmq.api.queue import AsyncBodies, AsyncConsumer, Bodies, Consumer
from shmq.extras.otel.message import TracedMessage
from shmq.extras.otel.proxy import Traced, implement
from shmq.extras.otel.telemetry import received_one


class TracedConsumer(Traced):
    """A traced `Consumer`."""

    __slots__ = ()
    #: What it hands out.
    handed: type[TracedMessage] = TracedMessage

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._telemetry.receive(self._place) as receiving:
            message = next(self.__wrapped__)
            received_one(receiving, message)
        return self.handed(message, self._telemetry, self._place)


class TracedAsyncConsumer(Traced):
    """A traced `AsyncConsumer`."""

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TracedMessage:
        with self._telemetry.receive(self._place) as receiving:
            message = await anext(self.__wrapped__)
            received_one(receiving, message)
        return TracedMessage(message, self._telemetry, self._place)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.__wrapped__.aclose()


class _InHand:
    """The message whose body was handed out last, to be settled by the next step."""

    __slots__ = ("__weakref__", "_consumer", "_message")

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._message: TracedMessage | None = None

    def __repr__(self) -> str:
        return f"<bodies of {self._consumer!r}>"

    def flush(self) -> None:
        self._consumer.flush()

    def _ack(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            message.ack()

    def _nack(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            message.drop()

    def _body_of(self, message: TracedMessage) -> Any:
        try:
            body = message.body
        except BaseException:
            message.drop()
            raise
        self._message = message
        return body

    def __del__(self) -> None:
        if getattr(self, "_message", None) is not None:
            assert self._message is not None
            self._message.drop()


class TracedBodies(_InHand):
    """A traced `Bodies`."""

    __slots__ = ()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._ack()
        return self._body_of(next(self._consumer))

    def close(self) -> None:
        self._nack()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._ack()
        finally:
            self.close()


class TracedAsyncBodies(_InHand):
    """A traced `AsyncBodies`."""

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        self._ack()
        return self._body_of(await anext(self._consumer))

    async def aclose(self) -> None:
        self._nack()
        await self._consumer.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._ack()
        finally:
            await self.aclose()


implement(Consumer, TracedConsumer)
implement(AsyncConsumer, TracedAsyncConsumer)
implement(Bodies, TracedBodies)
implement(AsyncBodies, TracedAsyncBodies)
