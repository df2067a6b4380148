"""A loan whose send is traced, from the reservation to the commit."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from shmq.api.queue import Loan
from shmq.extras.otel.operation import Operation
from shmq.extras.otel.proxy import implement


class TracedLoan:
    """A traced `Loan` or `RecordLoan`."""

    __slots__ = ("__wrapped__", "_sending")

    def __init__(self, wrapped: Any, sending: Operation) -> None:
        self.__wrapped__ = wrapped
        self._sending = sending

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def commit(self, size: int | None = None) -> Any:
        try:
            done = self.__wrapped__.commit(size)
        except BaseException as error:
            self._sending.finish(error)
            raise
        self._finish(done)
        return done

    def drop(self) -> None:
        self.__wrapped__.drop()
        self._sending.drop()

    def __enter__(self) -> memoryview:
        view: memoryview = self.__wrapped__.__enter__()
        return view

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.__wrapped__.__exit__(kind, error, trace)
        except BaseException as refusal:
            self._sending.finish(refusal)
            raise
        self._finish(getattr(self.__wrapped__, "put", None) or self._appended())

    def _appended(self) -> Any:
        return getattr(self.__wrapped__, "appended", None)

    def _finish(self, done: Any) -> None:
        if done is None:
            self._sending.drop()
            return
        if hasattr(done, "sequence"):
            self._sending.about(done.sequence)
        else:
            self._sending.about(done.offset, done.partition)
        self._sending.finish()


implement(Loan, TracedLoan)
