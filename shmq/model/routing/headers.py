"""Matches the headers of a message against the bindings of a headers exchange.

Bindings are indexed by header: one with ``all`` under one of its headers, one with ``any`` under
each. A publish looks up only the headers of the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shmq.errors import InvalidOption
from shmq.model.routing.topic import Target

#: The most headers of one binding.
MOST_HEADERS: Final = 64

#: A header: its name, its value, and whether that is a bool, which equals no number here.
Header = tuple[str, Any, bool]

#: The headers of a binding, sorted by name, and ``all`` or ``any``.
Wanted = tuple[tuple[Header, ...], str]

_SCALARS = (str, bytes, bool, int, float)


def check_headers(headers: Mapping[str, Any] | None, match: str) -> Wanted:
    """The headers of a binding. Raises :class:`InvalidOption`, and TypeError."""
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(f"headers={headers!r:.80} must be a map, not {type(headers).__name__}")
    if match not in {"all", "any"}:
        raise InvalidOption(f"match={match!r} must be one of 'all', 'any'")
    if len(headers or ()) > MOST_HEADERS:
        raise InvalidOption(f"headers has {len(headers or ())} entries, and may have 64")
    for name, value in (headers or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"headers: the name {name!r:.80} must be a str")
        if value is not None and not isinstance(value, _SCALARS):
            raise TypeError(
                f"headers: {name!r} is {value!r:.80}; a binding compares with str, bytes, bool, "
                f"int, float, or None for any value"
            )
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise InvalidOption(f"headers: {name!r} is {value}, which has more than 64 bits")
        if value != value:  # noqa: PLR0124 - so it is with a NaN alone
            raise InvalidOption(f"headers: {name!r} is a NaN, which equals nothing")
    if not headers and match == "any":
        raise InvalidOption("match='any' of no headers matches nothing: name some headers")
    found = (_make_header(name, value) for name, value in (headers or {}).items())
    return tuple(sorted(found, key=lambda header: header[0])), match


class Headers:
    """The bindings of a headers exchange."""

    def __init__(self) -> None:
        self._filed: dict[Header | None, dict[tuple[Wanted, Target], None]] = {}

    def add(self, wanted: Wanted, target: Target) -> None:
        """Add a binding: messages with the headers go to the target."""
        for place in _choose_places(wanted):
            self._filed.setdefault(place, {})[wanted, target] = None

    def remove(self, wanted: Wanted, target: Target) -> None:
        """Undo `add`."""
        for place in _choose_places(wanted):
            filed = self._filed.get(place, {})
            filed.pop((wanted, target), None)
            if not filed:
                self._filed.pop(place, None)

    def match(self, headers: Mapping[str, Any]) -> set[Target]:
        """The targets of a message with the headers."""
        has = set(_iterate_filings(headers))
        return {
            target
            for place in (None, *has)
            for (items, match), target in self._filed.get(place, ())
            if match == "any" or has.issuperset(items)
        }


def _choose_places(wanted: Wanted) -> tuple[Header | None, ...]:
    """The headers under which a binding is indexed; None: it has none, and matches all."""
    items, match = wanted
    return items if match == "any" else (items[:1] or (None,))


def _iterate_filings(headers: Mapping[str, Any]) -> Iterator[Header]:
    for name, value in headers.items():
        yield _make_header(name, None)
        if isinstance(value, _SCALARS):
            yield _make_header(name, value)


def _make_header(name: str, value: Any) -> Header:
    return name, value, isinstance(value, bool)
