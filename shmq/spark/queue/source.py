"""The queues that a query reads: by name or by pattern."""

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
    """The queues that a query subscribes to."""

    names: tuple[str, ...] | None
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> Self:
        """The subscription in the options. Raises InvalidOption, InvalidName."""
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
        """The names of the queues that exist now, in a fixed order.

        If ``strict``, raises NoSuchQueue for a named queue that does not exist; a pattern may
        match none.
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
