"""The proxy of traced handles: one class for each contract, made from the table."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

from shmq import api
from shmq.api.contract import Settling, document, unwrapped
from shmq.extras.otel.context import Place
from shmq.extras.otel.operation import HANDLED, Operation
from shmq.extras.otel.table import TABLE, Call, Itself, Own, Row, Through
from shmq.extras.otel.telemetry import Telemetry, identify
from shmq.native import _core

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


class Traced:
    """A handle whose operations are traced; all others are those of the wrapped handle."""

    __slots__ = ("__weakref__", "__wrapped__", "trace_place", "trace_telemetry")

    #: The contract's name in the table.
    trace_contract: ClassVar[str]

    def __init__(self, wrapped: Any, telemetry: Telemetry, place: Place) -> None:
        self.__wrapped__ = wrapped
        self.trace_telemetry = telemetry
        self.trace_place = place

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # it is not made yet
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_proxy, (self.trace_contract, self.__wrapped__, self.trace_place)

    def __enter__(self) -> Any:
        self.__wrapped__.__enter__()
        return self

    def __exit__(self, *how: object) -> Any:
        return self.__wrapped__.__exit__(*how)

    def trace_open(self, contract: str, handle: Any, place: Place | None = None) -> Traced:
        """The proxy of a handle that this one returns."""
        return proxy_of(contract)(handle, self.trace_telemetry, place or self.trace_place)

    def trace_finish(self, operation: Operation) -> None:
        """Finish the operation of a call that has returned."""
        operation.finish()


def _restore_proxy(contract: str, wrapped: Any, place: Place) -> Traced:
    """The handle in a process that has unpickled it, with that process's own providers."""
    return proxy_of(contract)(wrapped, Telemetry(), place)


# ---- what is more than calls ----


class _Broker(Traced):
    __slots__ = ()

    def typed(self, *of: Any, **how: Any) -> Any:
        # Its puts are those of the traced handle.
        return type(self.__wrapped__).typed(self, *of, **how)

    def serve(self, queue: Any, handler: Callable[[Any], Any], **how: Any) -> Any:
        # It opens its queues, for replies too, as this broker.
        opened = self.queue(queue) if isinstance(queue, str) else queue
        traced = handler
        if callable(handler) and isinstance(opened, _Queue):
            traced = opened.processing(handler)
        try:
            return type(self.__wrapped__).serve(self, opened, traced, **how)
        finally:
            if opened is not queue:
                opened.close()


class _Queue(Traced):
    __slots__ = ()

    def processing(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The handler of this queue's messages with a span around each call."""
        return self.trace_telemetry.processing(self.trace_place, handler)


class _Message(Traced):
    """A ``with`` block is the processing of the message."""

    __slots__ = ("_processing",)

    def drop(self) -> None:
        """Return it with the queue's back-off, without waiting; an expired lease is ignored."""
        with self.trace_telemetry.settle(self.trace_place, "nack", self.__wrapped__):
            _core.drop_in_hand(self.__wrapped__)

    def __enter__(self) -> Self:
        handled = HANDLED.get()
        self._processing: Operation | None = None
        if handled is None or handled.subject is not self:  # else its handler's call is traced
            process = self.trace_telemetry.process(self.trace_place, self.__wrapped__)
            self._processing = process.start()
            self._processing.attach()
        return self

    def __exit__(self, *how: object) -> None:
        processing, self._processing = self._processing, None
        try:
            Settling.__exit__(cast("Any", self), *cast("Any", how))
        finally:
            if processing is not None:
                processing.detach()
                processing.finish(cast("Any", how[1]))


class _Loan(Traced):
    """A loan whose send is traced, from the reservation to the commit."""

    __slots__ = ("trace_sending",)
    trace_sending: Operation

    def commit(self, size: int | None = None) -> Any:
        try:
            done = self.__wrapped__.commit(size)
        except BaseException as error:
            self.trace_sending.finish(error)
            raise
        self._finish(done)
        return done

    def drop(self) -> None:
        self.__wrapped__.drop()
        self.trace_sending.drop()

    def __enter__(self) -> Any:
        return self.__wrapped__.__enter__()

    def __exit__(self, *how: object) -> None:
        loan = self.__wrapped__
        try:
            loan.__exit__(*how)
        except BaseException as refusal:
            self.trace_sending.finish(refusal)
            raise
        self._finish(getattr(loan, "put", None) or getattr(loan, "appended", None))

    def _finish(self, done: Any) -> None:
        if done is None:
            self.trace_sending.drop()
            return
        identify(self.trace_sending, done)
        self.trace_sending.finish()


class _InHand(Traced):
    """Bodies over a traced consumer: the message of the last one is settled by the next step."""

    __slots__ = ("_message",)

    def __init__(self, wrapped: Any, telemetry: Telemetry, place: Place) -> None:
        super().__init__(wrapped, telemetry, place)
        self._message: Any = None

    def __repr__(self) -> str:
        return f"<bodies of {self.__wrapped__!r}>"

    def _settle(self, how: str) -> None:
        message, self._message = self._message, None
        if message is not None:
            getattr(message, how)()

    def _read_body(self, message: Any) -> Any:
        try:
            body = message.body
        except BaseException:
            message.drop()
            raise
        self._message = message
        return body

    def __del__(self) -> None:
        # At the end of the interpreter a thread that has stopped may hold a lock of the exporters.
        if getattr(self, "_message", None) is not None and not sys.is_finalizing():
            self._message.drop()


class _Bodies(_InHand):
    __slots__ = ()

    def __next__(self) -> Any:
        self._settle("ack")
        return self._read_body(next(self.__wrapped__))

    def close(self) -> None:
        self._settle("drop")
        self.__wrapped__.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        try:
            if how[0] is None:
                self._settle("ack")
        finally:
            self.close()


class _AsyncBodies(_InHand):
    __slots__ = ()

    async def __anext__(self) -> Any:
        self._settle("ack")
        return self._read_body(await anext(self.__wrapped__))

    async def aclose(self) -> None:
        self._settle("drop")
        await self.__wrapped__.aclose()

    async def __aexit__(self, *how: object) -> None:
        try:
            if how[0] is None:
                self._settle("ack")
        finally:
            await self.aclose()


class _AsyncSubscription(Traced):
    __slots__ = ()

    async def __aenter__(self) -> Self:
        await self.__wrapped__.__aenter__()
        return self


class _Transaction(Traced):
    """A transaction whose operations are traced: their spans end with the commit."""

    __slots__ = ("_collected",)

    def __init__(self, wrapped: Any, telemetry: Telemetry, place: Place) -> None:
        super().__init__(wrapped, telemetry, place)
        self._collected: list[Operation] = []

    def trace_finish(self, operation: Operation) -> None:
        self._collected.append(operation)

    def abort(self) -> None:
        self.__wrapped__.abort()
        for operation in self._take_operations():
            operation.drop()

    def finish(self) -> None:
        try:
            self.__wrapped__.finish()
        except BaseException as error:
            for operation in self._take_operations():
                operation.finish(error)
            raise
        for operation in self._take_operations():
            operation.finish()

    def _take_operations(self) -> list[Operation]:
        taken, self._collected = self._collected, []
        return taken


_BASES: Final[dict[str, type[Traced]]] = {
    "Broker": _Broker,
    "Queue": _Queue,
    "Message": _Message,
    "SharedRecord": _Message,
    "Loan": _Loan,
    "RecordLoan": _Loan,
    "Bodies": _Bodies,
    "AsyncBodies": _AsyncBodies,
    "AsyncSubscription": _AsyncSubscription,
    "Transaction": _Transaction,
}


# ---- the classes ----


@functools.cache
def proxy_of(name: str) -> type[Traced]:
    """The class of the proxies of a contract: one that counts as the contract's."""
    contract: Any = Iterator if name == "Iterator" else getattr(api, name)
    kind = type(
        f"Traced{name}",
        (_BASES.get(name, Traced),),
        {
            "__slots__": (),
            "__doc__": f"A traced `{name}`.",
            "trace_contract": name,
            **{
                method: _make_method(getattr(contract, method), row)
                for method, row in TABLE[name].items()
            },
        },
    )
    contract.register(kind)
    document(kind, contract)
    return kind


def _make_method(promised: Any, row: Row) -> Any:
    """The method that traces calls of the contract's method as its row says."""
    if isinstance(row, Own):
        return promised
    if isinstance(row, Itself):
        return lambda self: self
    if isinstance(row, Through):
        return functools.wraps(promised)(_pass_through(row))
    names = list(inspect.signature(promised).parameters)[1:]
    trace = _acall if inspect.iscoroutinefunction(promised) else _call
    return functools.wraps(promised)(trace(promised.__name__, names, row))


def _pass_through(row: Through) -> Callable[..., Any]:
    def call(self: Traced, *given: Any, **named: Any) -> Any:
        return self.trace_open(row.opens, getattr(self, row.method)(*given, **named))

    return call


def _call(name: str, names: list[str], row: Row) -> Callable[..., Any]:
    def call(self: Traced, *given: Any, **named: Any) -> Any:
        made = Call(names, given, named)
        operation = row.start(self, made)
        with _Failing(operation):
            done = getattr(self.__wrapped__, name)(*made.given, **made.named)
            return row.end(self, operation, done)

    return call


def _acall(name: str, names: list[str], row: Row) -> Callable[..., Any]:
    async def call(self: Traced, *given: Any, **named: Any) -> Any:
        made = Call(names, given, named)
        operation = row.start(self, made)
        with _Failing(operation):
            done = await getattr(self.__wrapped__, name)(*made.given, **made.named)
            return row.end(self, operation, done)

    return call


class _Failing:
    """Finishes the operation of a call that fails."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Operation | None) -> None:
        self._operation = operation

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._operation is not None:
            self._operation.finish(error)


def traced_broker(
    broker: api.Broker, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
) -> api.Broker:
    """The proxy of a broker; one that is traced already is traced again."""
    plain = unwrapped(broker)
    telemetry = Telemetry(tracer_provider, meter_provider)
    place = Place.of(getattr(plain, "url", None))
    return cast("api.Broker", proxy_of("Broker")(plain, telemetry, place))
