"""A transaction whose operations are traced: their spans end with the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from shmq.api.contract import unwrapped
from shmq.api.transaction import Transaction
from shmq.extras.otel.operation import Operation
from shmq.extras.otel.place import Place
from shmq.extras.otel.proxy import Traced, implement
from shmq.extras.otel.stream import each_with_context
from shmq.extras.otel.telemetry import Telemetry
from shmq.native import _stream

Headers = Mapping[str, Any] | None


class TracedTransaction(Traced):
    """A traced `Transaction`."""

    __slots__ = ("_collected",)

    def __init__(self, wrapped: Any, telemetry: Telemetry, place: Place) -> None:
        super().__init__(wrapped, telemetry, place)
        self._collected: list[Operation] = []

    def put(self, queue: Any, body: Any, *, headers: Headers = None, **properties: Any) -> None:
        sending = self._telemetry.send(self._at(queue), headers)
        properties["headers"] = sending.headers(headers)
        self._collect(sending, "put", unwrapped(queue), body, **properties)

    def append(self, stream: Any, value: Any, *, headers: Headers = None, **how: Any) -> None:
        sending = self._telemetry.send(self._at(stream), headers, "append")
        how["headers"] = sending.headers(headers)
        self._collect(sending, "append", unwrapped(stream), value, **how)

    def append_many(
        self,
        stream: Any,
        values: Sequence[Any],
        *,
        headers: Sequence[Headers] | None = None,
        **how: Any,
    ) -> None:
        _stream.check_many(values)
        _stream.check_each("headers", headers, len(values))
        sending = self._telemetry.send(self._at(stream), None, "append")
        how["headers"] = each_with_context(sending, headers, len(values))
        self._collect(sending, "append_many", unwrapped(stream), values, **how)

    def commit(self, member: Any, offsets: Mapping[int, int] | None = None) -> None:
        settling = self._telemetry.settle(getattr(member, "_place", self._place), "commit")
        self._collect(settling, "commit", unwrapped(member), offsets)

    def ack(self, queue: Any, *messages: Any) -> None:
        plain = [unwrapped(message) for message in messages]
        settling = self._telemetry.settle(self._at(queue), "ack", *plain)
        self._collect(settling, "ack", unwrapped(queue), *plain)

    def _at(self, target: Any) -> Place:
        return self._place.at(target if isinstance(target, str) else target.name)

    def _collect(self, operation: Operation, name: str, *given: Any, **named: Any) -> None:
        try:
            getattr(self.__wrapped__, name)(*given, **named)
        except BaseException as error:
            operation.finish(error)
            raise
        self._collected.append(operation)

    def abort(self) -> None:
        self.__wrapped__.abort()
        for operation in self._taken():
            operation.drop()

    def finish(self) -> None:
        try:
            self.__wrapped__.finish()
        except BaseException as error:
            for operation in self._taken():
                operation.finish(error)
            raise
        for operation in self._taken():
            operation.finish()

    def _taken(self) -> list[Operation]:
        taken, self._collected = self._collected, []
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abort()
        elif not self.__wrapped__.aborted:
            self.finish()


implement(Transaction, TracedTransaction)
