"""Where a message would go: each exchange that it passes, with the bindings that match it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shmq import api
from shmq.errors import NoSuchExchange
from shmq.model.routing.headers import Headers, check_headers
from shmq.model.routing.topic import Topics, check_key


class Shown(NamedTuple):
    """An exchange as it was found."""

    kind: str
    alternate: str | None
    bindings: Sequence[api.Binding]


class Step(NamedTuple):
    """One exchange on the way of a message."""

    exchange: str
    kind: str
    #: The bindings that the message matches.
    matched: tuple[api.Binding, ...]
    #: The exchange that gets the message because no binding matches; None: some does.
    alternate: str | None


def matches(kind: str, binding: api.Binding, key: str, headers: Mapping[str, Any]) -> bool:
    """Whether an exchange of that kind passes the message on by this binding."""
    if kind == "fanout":
        return True
    if kind == "direct":
        return binding.key == key
    target = (binding.kind, binding.target)
    if kind == "topic":
        topics = Topics()
        topics.add(binding.key, target)
        return bool(topics.match(key))
    index = Headers()
    index.add(check_headers(binding.headers, binding.match), target)
    return bool(index.match(headers))


def trace(
    name: str, key: str, headers: Mapping[str, Any], look: Callable[[str], Shown | None]
) -> list[Step]:
    """The exchanges that a message passes, from ``name`` on, each of them once.

    ``look`` finds an exchange; None: it is not followed. One that is gone is not followed either.
    Raises :class:`~shmq.NoSuchExchange` for ``name`` alone, and InvalidOption for an invalid key.
    """
    check_key(key)
    steps: list[Step] = []
    seen, left = {name}, [name]
    while left:
        one = left.pop(0)
        try:
            found = look(one)
        except NoSuchExchange:
            if one == name:
                raise
            continue
        if found is None:
            continue
        matched = tuple(each for each in found.bindings if matches(found.kind, each, key, headers))
        alternate = None if matched else found.alternate
        steps.append(Step(one, found.kind, matched, alternate))
        further = [each.target for each in matched if each.kind == "exchange"]
        for target in [*further, *([alternate] if alternate is not None else [])]:
            if target not in seen:
                seen.add(target)
                left.append(target)
    return steps
