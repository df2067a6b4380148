"""The streams and partitions that a query reads."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import shmq
from shmq.api.names import check_name
from shmq.errors import InvalidOption, NoSuchStream

__all__ = ["Assigned", "Topics", "assigned"]

#: The partitions of each stream, by its name.
Assigned = Mapping[str, tuple[int, ...]]


def assigned(given: str) -> Assigned:
    """Partitions by stream, from JSON such as ``{"orders": [0, 1]}``. Raises ValueError."""
    allowed = 'the partitions of streams as JSON, as {"orders": [0, 1]}'
    try:
        found = json.loads(given)
        numbers = {name: tuple(sorted(map(_partition, each))) for name, each in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError(allowed) from None
    if not numbers or any(not each or len(set(each)) < len(each) for each in numbers.values()):
        raise ValueError(f"{allowed}, none of them twice, and some of each")
    return MappingProxyType(numbers)


def _partition(given: Any) -> int:
    if type(given) is not int or given < 0:
        raise ValueError(given)
    return given


@dataclasses.dataclass(frozen=True)
class Topics:
    """The streams to read: by name, by pattern, or by their partitions."""

    names: tuple[str, ...] | None
    pattern: re.Pattern[str] | None
    assigned: Assigned | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> Self:
        """The streams that the options select. Raises InvalidOption, InvalidName."""
        given = [chosen[name] for name in ("subscribe", "subscribePattern", "assign")]
        if sum(each is not None for each in given) != 1:
            several = "only one of them" if any(given) else "and none of them is there"
            raise InvalidOption(
                "say which streams: the option subscribe names one or several, subscribePattern "
                "is a regular expression for their names, and assign names partitions; "
                f"{several}"
            )
        for name in given[0] or given[2] or ():
            check_name(name)
        return cls(*given)

    def find(self, broker: shmq.Broker, *, strict: bool = True) -> tuple[str, ...]:
        """The names of the streams that exist now, in a fixed order.

        If ``strict``, raises NoSuchStream for a named stream that does not exist; a pattern may
        match none.
        """
        there = {summary.name for summary in broker.list_streams()}
        if self.pattern is not None:
            return tuple(sorted(name for name in there if self.pattern.fullmatch(name)))
        wanted = self.names or tuple(self.assigned or ())
        missing = [name for name in wanted if name not in there]
        if strict and missing:
            raise NoSuchStream(
                f"there is no stream {missing[0]!r} in the namespace {broker.namespace!r}: make it "
                f"first, or give another url or subscribe"
            )
        return tuple(name for name in wanted if name in there)

    def partitions(self, name: str, count: int) -> tuple[int, ...]:
        """The selected partitions of a stream, of the ``count`` that it has.

        Raises InvalidOption for an assigned partition that does not exist.
        """
        if self.assigned is None:
            return tuple(range(count))
        wanted = self.assigned[name]
        if wanted[-1] >= count:
            raise InvalidOption(
                f"the option assign has the partition {wanted[-1]} of the stream {name!r}, which "
                f"has the partitions 0 to {count - 1}"
            )
        return wanted
