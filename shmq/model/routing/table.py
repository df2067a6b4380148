"""The exchanges of a namespace with their bindings, and the routing of messages.

A table is changed by operations, and its file is a sequence of them: see `shmq.model.routing.book`.
An operation from a file is checked like one from a caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from shmq import api
from shmq.api.names import check_name
from shmq.api.options import checked
from shmq.errors import ExchangeExists, InvalidOption, NoSuchExchange
from shmq.lazy_imports import late_imports
from shmq.model.routing.headers import Headers, Wanted, check_headers
from shmq.model.routing.topic import Target, Topics, check_key, check_pattern

_TARGETS: Final = ("queue", "stream", "exchange")

#: The most resolved keys that are cached.
_MOST_ROUTES: Final = 4096

Operation = list[Any]
_Key = str | Wanted


class Route(NamedTuple):
    """The targets of a message: queues and streams, by name, sorted."""

    queues: tuple[str, ...]
    streams: tuple[str, ...] = ()


class _Keys:
    """The bindings of a direct exchange; a fanout's are under one key."""

    def __init__(self) -> None:
        self._targets: dict[Any, set[Target]] = {}

    def add(self, key: Any, target: Target) -> None:
        self._targets.setdefault(key, set()).add(target)

    def remove(self, key: Any, target: Target) -> None:
        targets = self._targets.get(key, set())
        targets.discard(target)
        if not targets:
            self._targets.pop(key, None)

    def match(self, key: Any) -> set[Target]:
        return self._targets.get(key, set())


#: By the kind of an exchange, what finds its bindings.
_INDEXES: Final = {"direct": _Keys, "fanout": _Keys, "topic": Topics, "headers": Headers}


class _Exchange:
    """One exchange."""

    def __init__(self, name: str, kind: str, alternate: str | None) -> None:
        self.name = name
        self.kind = kind
        self.alternate = alternate
        self.bindings: set[tuple[_Key, Target]] = set()
        self._index: Any = _INDEXES[kind]()

    def add(self, key: _Key, target: Target) -> None:
        self.bindings.add((key, target))
        self._index.add(key, target)

    def remove(self, key: _Key, target: Target) -> None:
        self.bindings.remove((key, target))
        self._index.remove(key, target)

    def match(self, key: str, headers: Mapping[str, Any]) -> set[Target]:
        if self.kind == "fanout":
            key = ""
        found: set[Target] = self._index.match(headers if self.kind == "headers" else key)
        return found


class Table:
    """All exchanges of a namespace."""

    def __init__(self) -> None:
        self._exchanges: dict[str, _Exchange] = {}
        self._leading_to: dict[Target, set[tuple[str, _Key]]] = {}
        self._routes: dict[tuple[str, str], Route] = {}
        #: The number of headers exchanges.
        self._by_headers = 0
        #: The number of operations that would make this table.
        self.size = 0

    # ---- changes ----

    def apply(self, operation: Operation) -> None:
        """Apply an operation from `operation_of`; one that is already applied changes nothing."""
        what, *given = operation
        self._routes.clear()
        getattr(self, f"_{what}")(*given)

    def _make(self, name: str, kind: str, alternate: str | None) -> None:
        if name not in self._exchanges:
            self._exchanges[name] = _Exchange(name, kind, alternate)
            self._by_headers += kind == "headers"
            self.size += 1

    def _delete(self, name: str) -> None:
        exchange = self._exchanges.get(name)
        if exchange is None:
            return
        for key, target in list(exchange.bindings):
            self._drop(exchange, key, target)
        self._forget("exchange", name)
        del self._exchanges[name]
        self._by_headers -= exchange.kind == "headers"
        self.size -= 1

    def _bind(self, name: str, *binding: Any) -> None:
        exchange = self._exchanges.get(name)
        key, target = _make_key_and_target(*binding)
        if exchange is None or (key, target) in exchange.bindings:
            return
        exchange.add(key, target)
        self._leading_to.setdefault(target, set()).add((name, key))
        self.size += 1

    def _unbind(self, name: str, *binding: Any) -> None:
        exchange = self._exchanges.get(name)
        key, target = _make_key_and_target(*binding)
        if exchange is not None and (key, target) in exchange.bindings:
            self._drop(exchange, key, target)

    def _forget(self, kind: str, name: str) -> None:
        for exchange, key in list(self._leading_to.get((kind, name), ())):
            self._drop(self._exchanges[exchange], key, (kind, name))

    def _drop(self, exchange: _Exchange, key: _Key, target: Target) -> None:
        exchange.remove(key, target)
        self._leading_to[target].remove((exchange.name, key))
        if not self._leading_to[target]:
            del self._leading_to[target]
        self.size -= 1

    def operations(self) -> Iterator[Operation]:
        """The operations that make this table from an empty one; the exchanges first."""
        for exchange in self._exchanges.values():
            yield ["make", exchange.name, exchange.kind, exchange.alternate]
        for exchange in self._exchanges.values():
            for key, (kind, target) in exchange.bindings:
                plain, headers = (key, None) if isinstance(key, str) else ("", _pack(key))
                yield ["bind", exchange.name, kind, target, plain, headers]

    # ---- reading ----

    def summary(self, name: str) -> api.ExchangeSummary:
        """The exchange in one line. Raises NoSuchExchange."""
        exchange = self._get(name)
        return api.ExchangeSummary(
            name=name,
            kind=cast("api.ExchangeKind", exchange.kind),
            alternate=exchange.alternate,
            bindings=len(exchange.bindings),
        )

    def summaries(self) -> list[api.ExchangeSummary]:
        """All exchanges, sorted by name."""
        return [self.summary(name) for name in sorted(self._exchanges)]

    def kind_of(self, name: str) -> str:
        """The kind of the exchange. Raises NoSuchExchange."""
        kind: str = self._get(name).kind
        return kind

    def has(self, name: str) -> bool:
        """Whether there is an exchange of that name."""
        return name in self._exchanges

    def is_bound(self, name: str, binding: Operation) -> bool:
        """Whether the exchange has the binding. Raises NoSuchExchange."""
        return _make_key_and_target(*binding) in self._get(name).bindings

    def leads_to(self, kind: str, name: str) -> bool:
        """Whether anything is bound to that target."""
        return (kind, name) in self._leading_to

    def bindings(self, name: str) -> list[api.Binding]:
        """The exchange's bindings, sorted by target and key. Raises NoSuchExchange."""
        return sorted(
            (_make_binding(key, target) for key, target in self._get(name).bindings),
            key=lambda each: (each.kind, each.target, each.key, repr(each.headers), each.match),
        )

    def check_kind(self, name: str, kind: str, alternate: str | None) -> None:
        """Raise ExchangeExists if there is another exchange of that name."""
        found = self._exchanges.get(name)
        if found is not None and (found.kind, found.alternate) != (kind, alternate):
            both = {"kind": (kind, found.kind), "alternate": (alternate, found.alternate)}
            raise ExchangeExists(
                f"exchange {name!r} exists, with kind={found.kind!r} and "
                f"alternate={found.alternate!r}, not {kind!r} and {alternate!r}; use it as is, "
                f"or delete it first",
                {key: pair for key, pair in both.items() if pair[0] != pair[1]},
            )

    def _get(self, name: str) -> _Exchange:
        try:
            return self._exchanges[name]
        except KeyError:
            raise NoSuchExchange.of(name, "in this namespace") from None

    # ---- routing ----

    def route(self, name: str, key: str, headers: Mapping[str, Any]) -> Route:
        """The route of a message that is published to the exchange. Raises NoSuchExchange."""
        if headers and self._by_headers:
            return self._resolve(name, key, headers)
        known = self._routes.get((name, key))
        if known is None:
            known = self._resolve(name, key, headers)
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._routes[name, key] = known
        return known

    def _resolve(self, name: str, key: str, headers: Mapping[str, Any]) -> Route:
        """Follow the bindings from exchange to exchange, visiting each once."""
        found: dict[str, set[str]] = {"queue": set(), "stream": set()}
        seen = {name}
        left = [self._get(name)]
        while left:
            exchange = left.pop()
            targets = exchange.match(key, headers)
            if not targets and exchange.alternate is not None:
                targets = {("exchange", exchange.alternate)}
            for kind, target in targets:
                if kind in found:
                    found[kind].add(target)
                elif target not in seen and target in self._exchanges:
                    seen.add(target)
                    left.append(self._exchanges[target])
        return Route(tuple(sorted(found["queue"])), tuple(sorted(found["stream"])))


# ---- checks of arguments ----


def check_exchange(name: str, kind: str, alternate: str | None) -> Operation:
    """The operation that creates the exchange. Raises InvalidName, InvalidOption, TypeError."""
    check_name(name, "exchange")
    with late_imports:
        from shmq.api.exchange import ExchangeOptions  # noqa: PLC0415 - exchanges are rarer

    checked(ExchangeOptions, {"kind": kind, "alternate": alternate}, " of an exchange")
    if alternate == name:
        raise InvalidOption(f"alternate={name!r} is the exchange itself: name another")
    return ["make", name, kind, alternate]


def check_binding(
    exchange_kind: str,
    target: str,
    key: str,
    kind: str,
    headers: Mapping[str, Any] | None,
    match: str,
) -> Operation:
    """The binding, as in an operation. Raises InvalidName, InvalidOption, TypeError."""
    if kind not in _TARGETS:
        raise InvalidOption(f"kind={kind!r} must be one of {', '.join(map(repr, _TARGETS))}")
    check_name(target, kind)
    check_pattern(key) if exchange_kind == "topic" else check_key(key)
    wanted = check_headers(headers, match)
    if exchange_kind == "headers":
        if key:
            raise InvalidOption(f"key={key!r}: a headers exchange goes by headers, not by keys")
        return [kind, target, "", _pack(wanted)]
    if headers or match != "all":
        raise InvalidOption(f"headers and match are for a headers exchange, not a {exchange_kind}")
    if exchange_kind == "fanout" and key:
        raise InvalidOption(f"key={key!r}: a fanout exchange passes on everything, by no key")
    return [kind, target, key, None]


def operation_of(found: Any, table: Table) -> Operation:
    """An operation from a file, checked. Raises ValueError and what the checks raise.

    It imports nothing: a destructor that removes a queue may run when the interpreter ends.
    """
    if not isinstance(found, list) or not found:
        raise ValueError("an operation must be a list")
    what, *given = found
    if what == "make" and len(given) == 3 and given[1] in _INDEXES:
        if given[2] is not None:
            check_name(given[2], "exchange")
        return ["make", check_name(given[0], "exchange"), *given[1:]]
    if what == "delete" and len(given) == 1:
        return ["delete", check_name(given[0], "exchange")]
    if what == "forget" and len(given) == 2 and given[0] in _TARGETS:
        return ["forget", given[0], check_name(given[1], given[0])]
    if what in {"bind", "unbind"} and len(given) == 5:
        name, kind, target, key, wanted = given
        headers, match = ({}, "all") if wanted is None else (_make_plain(wanted[0]), wanted[1])
        exchange_kind = table.kind_of(name)
        return [what, name, *check_binding(exchange_kind, target, key, kind, headers, match)]
    raise ValueError(f"unknown operation {found!r:.100}")


def _pack(wanted: Wanted) -> list[Any]:
    items, match = wanted
    return [[list(item) for item in items], match]


def _make_key_and_target(kind: str, target: str, key: str, wanted: Any) -> tuple[_Key, Target]:
    if wanted is None:
        return key, (kind, target)
    return (tuple(tuple(item) for item in wanted[0]), wanted[1]), (kind, target)


def _make_binding(key: _Key, target: Target) -> api.Binding:
    kind, name = cast("api.TargetKind", target[0]), target[1]
    if isinstance(key, str):
        return api.Binding(name, kind, key)
    return api.Binding(name, kind, "", _make_plain(key[0]), cast("api.Match", key[1]))


def _make_plain(headers: Any) -> dict[str, Any]:
    return {name: value for name, value, _ in headers}
