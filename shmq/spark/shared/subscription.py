"""The queues or streams that a query reads."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

import shmq
from shmq.api.names import check_name
from shmq.errors import InvalidOption, NoSuchQueue, NoSuchStream, ShmqError

#: The partitions of each stream, by its name.
Assigned = Mapping[str, tuple[int, ...]]

#: The options that select, each with what it takes.
_WAYS = MappingProxyType(
    {
        "subscribe": "one or several names",
        "subscribePattern": "a regular expression for their names",
        "assign": "partitions",
    }
)


def assigned(given: str) -> Assigned:
    """Partitions by stream, from JSON such as ``{"orders": [0, 1]}``. Raises ValueError."""
    allowed = 'the partitions of streams as JSON, as {"orders": [0, 1]}'
    try:
        found = {name: tuple(sorted(each)) for name, each in json.loads(given).items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError(allowed) from None
    if not all(type(number) is int and number >= 0 for each in found.values() for number in each):
        raise ValueError(allowed)
    if not found or any(not each or len(set(each)) < len(each) for each in found.values()):
        raise ValueError(f"{allowed}, none of them twice, and some of each")
    return MappingProxyType(found)


Thing = Literal["queue", "stream"]


@dataclasses.dataclass(frozen=True)
class Subscription:
    """The queues or streams to read: by name, by pattern or, for streams, by their partitions."""

    thing: Thing
    names: tuple[str, ...] | None
    pattern: re.Pattern[str] | None
    assigned: Assigned | None = None

    @classmethod
    def of(cls, chosen: Mapping[str, Any], thing: Thing) -> Self:
        """The subscription in the options. Raises InvalidOption, InvalidName."""
        given = [chosen[name] for name in _WAYS if name in chosen]
        if sum(each is not None for each in given) != 1:
            ways = ", ".join(f"{name} ({what})" for name, what in _WAYS.items() if name in chosen)
            count = "several" if any(given) else "none"
            raise InvalidOption(
                f"say which {thing}s by one of the options {ways}: {count} of them is given"
            )
        subscription = cls(thing, *given)
        for name in subscription._select():
            check_name(name)
        return subscription

    def find(self, broker: shmq.Broker, *, strict: bool = True) -> tuple[str, ...]:
        """The names of those that exist now, in a fixed order.

        If ``strict``, raises NoSuchQueue or NoSuchStream for a name that does not exist; a
        pattern may match none.
        """
        there = names_of(self.thing, broker)
        if self.pattern is not None:
            return tuple(sorted(name for name in there if self.pattern.fullmatch(name)))
        missing = [name for name in self._select() if name not in there]
        if strict and missing:
            raise _make_no_such(self.thing, missing[0], broker)
        return tuple(name for name in self._select() if name in there)

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

    def _select(self) -> tuple[str, ...]:
        return tuple(self.names or self.assigned or ())


def names_of(thing: Thing, broker: shmq.Broker) -> set[str]:
    """The names of all queues or streams."""
    if thing == "queue":
        return set(broker.queue_names())
    return {summary.name for summary in broker.list_streams()}


def _make_no_such(thing: Thing, name: str, broker: shmq.Broker) -> ShmqError:
    """The error for a missing name, which may be that of the other kind.

    Without the option ``kind`` the name of a deleted stream is looked up as that of a queue.
    """
    other: Thing
    kind: type[ShmqError]
    kind, other = (NoSuchQueue, "stream") if thing == "queue" else (NoSuchStream, "queue")
    with contextlib.suppress(ShmqError):  # no right to list them, or a broker without streams
        if name in names_of(other, broker):
            return kind(
                f"{thing} {name!r} does not exist in the namespace {broker.namespace!r}, but a "
                f"{other} of that name does: to read it, set .option('kind', {other!r})"
            )
    return kind(
        f"{thing} {name!r} does not exist in the namespace {broker.namespace!r}, nor does a "
        f"{other} of that name: create it first, or set another url or subscribe"
    )
