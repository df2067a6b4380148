"""The records of a stream of this host that a subscription keeps: a hold on each partition."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shmq.client.ports.steps import Steps
from shmq.errors import InvalidOption, NoSpace, OffsetOutOfRange, ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core, _stream

#: The tag of the holds that a server takes for its clients.
REMOTE: Final = 0x4D45_5452_4548_4C44

#: The most such holds of a partition; the others are for this host.
_MOST_REMOTE: Final = 128


class RetentionHold:
    """Holds records of a stream back from retention, at most until the process ends.

    In the child of a fork it holds nothing at first, and takes its own holds; those of its parent
    stay. ``tag`` is 0 or `REMOTE`. Raises InvalidOption if the stream cannot be held back.
    """

    number = None

    def __init__(self, stream: Any, tag: int = 0) -> None:
        if stream.options.overflow != "block":
            raise InvalidOption(
                f"policy='block': stream {stream.name!r} has overflow={stream.options.overflow!r}, "
                f"so no subscription can hold it back: make it with overflow='block'"
            )
        self.stream = stream
        self._tag = tag
        self._generation = _core.generation()
        self._closed = False
        #: Of each partition the number of the hold, and its owner.
        self._holds: dict[int, tuple[int, int]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing."""
        return not self._holds

    def take(self, position: Mapping[int, int]) -> None:
        """Hold the records from these offsets on; moves a hold that exists."""
        if self._closed:
            raise ShmqError(
                f"what held stream {self.stream.name!r} back is closed: subscribe again"
            )
        self._forget_parents()
        gone: OffsetOutOfRange | None = None
        with self.whole():
            for partition, offset in position.items():
                if partition in self._holds:
                    # No other process ends it while this one lives.
                    hold, owner = self._holds[partition]
                    self._partition(partition).move(hold, offset, owner, self._tag)
                    continue
                error = self._hold(partition, offset)
                gone = gone or error
            if gone is not None:
                raise gone

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """If the block fails, except with OffsetOutOfRange, release the holds that it took."""
        before = set(self._holds)
        try:
            yield
        except OffsetOutOfRange:
            raise
        except BaseException:
            for partition in self._holds.keys() - before:
                self._partition(partition).drop(self._holds.pop(partition)[0])
            raise

    def move(self, position: Mapping[int, int]) -> None:
        """Hold the records from these offsets on, and no earlier ones."""
        with contextlib.suppress(OffsetOutOfRange):
            self.take(position)

    def close(self) -> None:
        """Release the records. May be called again."""
        self._closed = True
        self._forget_parents()
        while self._holds:
            partition, (hold, _) = self._holds.popitem()
            self._partition(partition).drop(hold)

    drop = close

    def taking(self, position: Mapping[int, int]) -> Steps[None]:
        """`take`, for a subscription."""
        yield from ()
        self.take(position)

    def closing(self) -> Steps[None]:
        """`close`, for a subscription."""
        yield from ()
        self.close()

    def _forget_parents(self) -> None:
        """In the child of a fork, forget the holds of the parent."""
        if _core.generation() != self._generation:
            self._generation = _core.generation()
            self._holds.clear()

    def _partition(self, partition: int) -> _stream.Partition:
        found: _stream.Partition = self.stream.logs[partition]
        return found

    def _hold(self, partition: int, offset: int) -> OffsetOutOfRange | None:
        """Take one hold; returns the error if records from ``offset`` on are already gone."""
        latest = self.stream.latest(partition)  # raises if no such partition exists
        log = self._partition(partition)
        try:
            self._check_room(partition)
            self._holds[partition] = self._hold_of(log, offset)
        except NoSpace:
            drop_dead(self.stream.namespace, log)
            self._check_room(partition)
            self._holds[partition] = self._hold_of(log, offset)
        earliest = self.stream.earliest(partition)
        if earliest <= offset <= latest:
            return None
        return OffsetOutOfRange.of(self.stream.name, partition, offset, earliest, latest)

    def _hold_of(self, log: _stream.Partition, offset: int) -> tuple[int, int]:
        owner = self.stream.namespace.processes.own_number()
        while True:
            try:
                return log.hold(offset, owner, self._tag), owner
            except OffsetOutOfRange as error:
                offset = error.earliest if offset < error.earliest else error.latest

    def _check_room(self, partition: int) -> None:
        """Raise NoSpace if the subscriptions of other hosts have all their holds."""
        if self._tag != REMOTE:
            return
        held = sum(tag == REMOTE for _, _, tag, _ in self._partition(partition).holders())
        if held >= _MOST_REMOTE:
            raise NoSpace(
                f"partition {partition} of stream {self.stream.name!r} is held back by "
                f"{_MOST_REMOTE} subscriptions over TCP, and by no more at a time: close some, or "
                f"subscribe with policy='drop-oldest'"
            )


def drop_dead(namespace: Namespace, log: _stream.Partition) -> None:
    """Drop the holds of dead processes on a partition.

    Other processes may do so at the same time: a living process that took over a dead one's entry
    keeps it.
    """
    for number, owner, _, _ in log.holders():
        if owner and not namespace.processes.is_alive(owner):
            log.drop_of(number, owner)
