"""The bounds of a read of files, from options and from the filters of a query."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from pyspark.sql import datasource as ds

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_LAST: Final = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Sequence numbers, times of the put in us since 1970, and queues; all ends are inclusive."""

    first: int = 0
    last: int = _LAST
    since: int = -_LAST
    until: int = _LAST
    #: None: every queue.
    queues: frozenset[str] | None = None

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> Self:
        """The bounds in the options, where the starts are inclusive and the ends exclusive."""
        last, until = chosen["endingSequence"], chosen["endingTimestamp"]
        return cls(
            first=chosen["startingSequence"] or 0,
            last=_LAST if last is None else last - 1,
            since=-_LAST if (since := chosen["startingTimestamp"]) is None else since,
            until=_LAST if until is None else until - 1,
        )

    @property
    def empty(self) -> bool:
        """Whether no row can be within the bounds."""
        return self.first > self.last or self.since > self.until or self.queues == frozenset()

    def has(self, queue: str) -> bool:
        """Whether rows of that queue can be within the bounds."""
        return not self.empty and (self.queues is None or queue in self.queues)

    def within(self, other: Bounds) -> Bounds:
        """The intersection of both bounds."""
        queues = self.queues if other.queues is None else other.queues
        if self.queues is not None and other.queues is not None:
            queues = self.queues & other.queues
        return Bounds(
            max(self.first, other.first),
            min(self.last, other.last),
            max(self.since, other.since),
            min(self.until, other.until),
            queues,
        )

    def narrowed(self, wanted: ds.Filter) -> Bounds | None:
        """The bounds narrowed by the filter; None if bounds cannot express it: Spark filters."""
        attribute: tuple[str, ...] = getattr(wanted, "attribute", ())
        if len(attribute) != 1 or attribute[0] not in _READ:
            return None
        if isinstance(wanted, ds.IsNotNull):
            return self
        make = _FILTERS.get((attribute[0] == "topic", type(wanted)))
        if make is None:
            return None
        read, bounds = _READ[attribute[0]], _BOUNDS[attribute[0]]
        given = wanted.value  # type: ignore[attr-defined]
        values = [read(each) for each in (given if isinstance(wanted, ds.In) else (given,))]
        if None in values:
            return None
        return self.within(bounds(*make(values)))


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _parse_micros(value: Any) -> int | None:
    """A moment in us since 1970; None for a time without a zone."""
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_READ: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {"offset": _number, "timestamp": _parse_micros, "topic": _name}
)
_BOUNDS: Final[Mapping[str, Callable[..., Bounds]]] = MappingProxyType(
    {
        "offset": lambda least, most: Bounds(first=max(0, least), last=most),
        "timestamp": lambda least, most: Bounds(since=least, until=most),
        "topic": lambda names: Bounds(queues=names),
    }
)
#: By whether the column has names, and by the kind of filter: the bounds that it sets.
_FILTERS: Final[Mapping[tuple[bool, type], Callable[[list[Any]], tuple[Any, ...]]]] = (
    MappingProxyType(
        {
            (False, ds.EqualTo): lambda at: (at[0], at[0]),
            (False, ds.EqualNullSafe): lambda at: (at[0], at[0]),
            (False, ds.GreaterThan): lambda at: (at[0] + 1, _LAST),
            (False, ds.GreaterThanOrEqual): lambda at: (at[0], _LAST),
            (False, ds.LessThan): lambda at: (-_LAST, at[0] - 1),
            (False, ds.LessThanOrEqual): lambda at: (-_LAST, at[0]),
            (True, ds.EqualTo): lambda names: (frozenset(names),),
            (True, ds.EqualNullSafe): lambda names: (frozenset(names),),
            (True, ds.In): lambda names: (frozenset(names),),
        }
    )
)
