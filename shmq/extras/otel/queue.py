"""A queue whose operations are traced."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from shmq.api.contract import unwrapped
from shmq.api.queue import Pipeline, Queue
from shmq.extras.otel.consumer import (
    TracedAsyncBodies,
    TracedAsyncConsumer,
    TracedBodies,
    TracedConsumer,
)
from shmq.extras.otel.loan import TracedLoan
from shmq.extras.otel.message import TracedMessage
from shmq.extras.otel.operation import Operation
from shmq.extras.otel.proxy import Traced, implement
from shmq.extras.otel.telemetry import received, received_one

Headers = Mapping[str, Any] | None


class TracedQueue(Traced):
    """A traced `Queue`."""

    __slots__ = ()

    # ---- putting ----

    def put(
        self,
        body: Any,
        block: bool | None = None,
        timeout: float | None = None,
        *,
        headers: Headers = None,
        **properties: Any,
    ) -> Any:
        with self._telemetry.send(self._place, headers) as sending:
            properties["headers"] = sending.headers(headers)
            put = self.__wrapped__.put(body, block, timeout, **properties)
            sending.about(put.sequence)
        return put

    def put_nowait(self, body: Any, **properties: Any) -> Any:
        return self.put(body, False, **properties)

    async def aput(
        self, body: Any, timeout: float | None = None, *, headers: Headers = None, **properties: Any
    ) -> Any:
        with self._telemetry.send(self._place, headers) as sending:
            properties["headers"] = sending.headers(headers)
            put = await self.__wrapped__.aput(body, timeout, **properties)
            sending.about(put.sequence)
        return put

    def put_many(
        self,
        bodies: Iterable[Any],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        headers: Headers = None,
        **properties: Any,
    ) -> int:
        with self._telemetry.send(self._place, headers) as sending:
            sending.batch(operator.length_hint(bodies))
            properties["headers"] = sending.headers(headers)
            count: int = self.__wrapped__.put_many(bodies, block, timeout, **properties)
            sending.batch(count)
        return count

    def put_packed(
        self,
        data: Any,
        lengths: int | Iterable[int],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        headers: Headers = None,
        **properties: Any,
    ) -> Any:
        with self._telemetry.send(self._place, headers) as sending:
            properties["headers"] = sending.headers(headers)
            put = self.__wrapped__.put_packed(data, lengths, block, timeout, **properties)
            sending.about(put.sequence)
        return put

    def loan(self, size: int, *, headers: Headers = None, **properties: Any) -> TracedLoan:
        sending = self._telemetry.send(self._place, headers)
        properties["headers"] = sending.headers(headers)
        try:
            return TracedLoan(self.__wrapped__.loan(size, **properties), sending)
        except BaseException as error:
            sending.finish(error)
            raise

    def pipeline(self, window: int = 64, **options: Any) -> TracedPipeline:
        pipeline = self.__wrapped__.pipeline(window, **options)
        return TracedPipeline(pipeline, self._telemetry, self._place)

    # ---- getting ----

    def _received(self, receiving: Operation, message: Any) -> TracedMessage:
        received_one(receiving, message)
        return TracedMessage(message, self._telemetry, self._place)

    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> TracedMessage:
        with self._telemetry.receive(self._place) as receiving:
            return self._received(receiving, self.__wrapped__.get(block, timeout, where=where))

    def get_nowait(self, *, where: str | None = None) -> TracedMessage:
        return self.get(False, where=where)

    async def aget(
        self, timeout: float | None = None, *, where: str | None = None
    ) -> TracedMessage:
        with self._telemetry.receive(self._place) as receiving:
            return self._received(receiving, await self.__wrapped__.aget(timeout, where=where))

    def get_many(self, max: int, timeout: float | None = None, **how: Any) -> list[TracedMessage]:
        with self._telemetry.receive(self._place) as receiving:
            messages = self.__wrapped__.get_many(max, timeout, **how)
            receiving.batch(len(messages))
            received(receiving, messages)
        return [TracedMessage(each, self._telemetry, self._place) for each in messages]

    def get_batch(self, max: int, timeout: float | None = None, **how: Any) -> Any:
        # A batch has no headers, so its span has no links.
        with self._telemetry.receive(self._place) as receiving:
            batch = self.__wrapped__.get_batch(max, timeout, **how)
            receiving.batch(len(batch))
        return batch

    def get_packed(self, max: int = 65536, timeout: float | None = None, **how: Any) -> Any:
        # Its records have no headers, so its span has no links.
        with self._telemetry.receive(self._place) as receiving:
            packed = self.__wrapped__.get_packed(max, timeout, **how)
            receiving.batch(len(packed))
        return packed

    def consume(
        self, prefetch: int = 64, timeout: float | None = None, **how: Any
    ) -> TracedConsumer:
        consumer = self.__wrapped__.consume(prefetch, timeout, **how)
        return TracedConsumer(consumer, self._telemetry, self._place)

    def bodies(self, prefetch: int = 64, timeout: float | None = None, **how: Any) -> TracedBodies:
        return TracedBodies(self.consume(prefetch, timeout, **how))

    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> TracedAsyncConsumer:
        consumer = self.__wrapped__.aconsume(prefetch, timeout, where=where)
        return TracedAsyncConsumer(consumer, self._telemetry, self._place)

    def abodies(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> TracedAsyncBodies:
        return TracedAsyncBodies(self.aconsume(prefetch, timeout, where=where))

    # ---- handling and settling ----

    def processing(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The handler of this queue's messages with a span around each call."""
        return self._telemetry.processing(self._place, handler)

    def ack_many(self, messages: Iterable[Any]) -> list[int]:
        plain = [unwrapped(each) for each in messages]
        known = [each for each in plain if hasattr(each, "headers")]
        with self._telemetry.settle(self._place, "ack", *known) as settling:
            settling.attributes.pop("messaging.message.id", None)
            settling.batch(len(plain))
            refused: list[int] = self.__wrapped__.ack_many(plain)
        return refused

    def ack(self, receipt: Any) -> None:
        with self._settling("ack", receipt) as plain:
            self.__wrapped__.ack(plain)

    def nack(self, receipt: Any, delay: float | None = None, *, counted: bool = True) -> None:
        with self._settling("nack", receipt) as plain:
            self.__wrapped__.nack(plain, delay, counted=counted)

    def reject(self, receipt: Any) -> None:
        with self._settling("reject", receipt) as plain:
            self.__wrapped__.reject(plain)

    def extend(self, receipt: Any, seconds: float) -> None:
        # It has no span: it settles nothing.
        self.__wrapped__.extend(unwrapped(receipt), seconds)

    @contextlib.contextmanager
    def _settling(self, name: str, receipt: Any) -> Iterator[Any]:
        """A settlement by a receipt, or by a message, of which more is known."""
        plain = unwrapped(receipt)
        known = [plain] if hasattr(plain, "headers") else []
        with self._telemetry.settle(self._place, name, *known):
            yield plain


class TracedPipeline(Traced):
    """A traced `Pipeline`. A span is of the call, not of the wait for its answer."""

    __slots__ = ()

    def put(self, body: Any, *, headers: Headers = None, **properties: Any) -> int:
        with self._telemetry.send(self._place, headers) as sending:
            properties["headers"] = sending.headers(headers)
            number: int = self.__wrapped__.put(body, **properties)
        return number


implement(Queue, TracedQueue)
implement(Pipeline, TracedPipeline)
