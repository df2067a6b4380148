"""Which queues are read: named, or by a pattern."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

import shmq
from shmq.api.names import check_name
from shmq.errors import InvalidOption, NoSuchQueue

__all__ = ["Subscription"]


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    """The queues that are meant."""

    names: tuple[str, ...] | None
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> Self:
        """What the options say. Raises InvalidOption, and InvalidName for what names no queue."""
        names, pattern = chosen["subscribe"], chosen["subscribePattern"]
        if (names is None) == (pattern is None):
            both = "not both" if names is not None else "and neither is there"
            raise InvalidOption(
                "say which queues: the option subscribe names one or several, subscribePattern "
                f"is a regular expression for their names; {both}"
            )
        for name in names or ():
            check_name(name)
        return cls(names, pattern)

    def find(self, broker: shmq.Broker, *, strict: bool = True) -> tuple[str, ...]:
        """The names of the queues that there are now, in a fixed order.

        Raises NoSuchQueue for one that is named and not there, if ``strict``; a pattern may
        fit none.
        """
        there = set(broker.queue_names())
        if self.pattern is not None:
            return tuple(sorted(name for name in there if self.pattern.fullmatch(name)))
        for name in self.names or ():
            if strict and name not in there:
                raise NoSuchQueue(
                    f"there is no queue {name!r} in the namespace {broker.namespace!r}: make it "
                    f"first, or give another url or subscribe"
                )
        return tuple(name for name in self.names or () if name in there)
