"""A message whose processing and settlement are traced."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from shmq.api.message import Message
from shmq.extras.otel.operation import HANDLED, Operation
from shmq.extras.otel.place import Place
from shmq.extras.otel.proxy import Traced, implement
from shmq.extras.otel.telemetry import Telemetry
from shmq.native import _core


class TracedMessage(Traced):
    """A traced `Message`. A ``with`` block is the processing of the message."""

    __slots__ = ("_processing",)

    def __init__(self, wrapped: Any, telemetry: Telemetry, place: Place) -> None:
        super().__init__(wrapped, telemetry, place)
        self._processing: Operation | None = None

    def ack(self) -> None:
        with self._settling("ack"):
            self.__wrapped__.ack()

    def nack(self, delay: float | None = None, **how: bool) -> None:
        with self._settling("nack"):
            self.__wrapped__.nack(*(() if delay is None else (delay,)), **how)

    def drop(self) -> None:
        """Return it with the queue's back-off, without waiting; if its lease is over, nothing."""
        with self._settling("nack"):
            _core.drop_in_hand(self.__wrapped__)

    def reject(self) -> None:
        with self._settling("reject"):
            self.__wrapped__.reject()

    def _settling(self, name: str) -> Operation:
        return self._telemetry.settle(self._place, name, self.__wrapped__)

    def __enter__(self) -> Self:
        handled = HANDLED.get()
        if handled is None or handled.subject is not self:  # else its handler's call is traced
            self._processing = self._telemetry.process(self._place, self.__wrapped__).start()
            self._processing.attach()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        processing, self._processing = self._processing, None
        try:
            if not self.__wrapped__.settled:
                if kind is None:
                    self.ack()
                else:
                    self.nack()
        finally:
            if processing is not None:
                processing.detach()
                processing.finish(error)


implement(Message, TracedMessage)
