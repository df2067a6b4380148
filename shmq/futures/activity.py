"""What each worker of a pool is doing, in memory that outlives the worker."""

from __future__ import annotations

from typing import Final

from shmq.host.supervision.heartbeat import SharedNumbers
from shmq.native import _clock as time

#: The numbers of a worker: whether it has started; the number of its call, 0 without one; the
#: receipt of the call's message; when the call began, in ns.
_READY, _CALL, _RECEIPT, _SINCE = range(4)
_WORDS: Final = 4


class Activities(SharedNumbers):
    """The activities of all workers. Each worker writes its own, and the pool reads them."""

    NAME = "shmq-pool"

    @classmethod
    def of(cls, workers: int) -> Activities:
        """Those of so many workers."""
        return cls(workers * _WORDS)

    def slot(self, number: int) -> Activity:
        """The activity of a worker."""
        return Activity(self.numbers[number * _WORDS : (number + 1) * _WORDS])

    def has_call(self, number: int) -> bool:
        """Whether a worker is executing the call."""
        return number in self.numbers[_CALL::_WORDS].tolist()


class Activity:
    """The activity of one worker."""

    def __init__(self, numbers: memoryview) -> None:
        self._numbers = numbers

    def reset(self) -> None:
        """Forget the worker before."""
        self._numbers[_READY] = self._numbers[_CALL] = self._numbers[_RECEIPT] = 0

    def get_ready(self) -> None:
        """Note that the worker has started."""
        self._numbers[_READY] = 1

    def begin(self, call: int, receipt: int) -> None:
        """Note that a call begins."""
        numbers = self._numbers
        numbers[_SINCE] = time.monotonic_ns()
        numbers[_RECEIPT] = receipt
        numbers[_CALL] = call

    def end(self) -> None:
        """Note that the call has ended."""
        self._numbers[_CALL] = 0

    @property
    def is_ready(self) -> bool:
        """Whether the worker had started: it has called its initializer."""
        return bool(self._numbers[_READY])

    @property
    def call(self) -> int:
        """The number of the call, or 0."""
        return int(self._numbers[_CALL])

    @property
    def receipt(self) -> int:
        """The receipt of the call's message."""
        return int(self._numbers[_RECEIPT])

    @property
    def seconds(self) -> float:
        """How long ago the call began."""
        return (time.monotonic_ns() - int(self._numbers[_SINCE])) / 1e9
