"""Exchanges: a drawing of all, their bindings in words, and where a message would go."""

from __future__ import annotations

from typing import Any, Final

from shmq.api.exchange import Binding, ExchangeSummary
from shmq.errors import NoSuchExchange, Unsupported
from shmq.extras.console.pages.drawing import drawing_of
from shmq.extras.console.pages.overview import findings_of
from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.extras.console.problem import Problem
from shmq.model.codec.strict_json import decode_json
from shmq.model.routing.table import Route, Table, check_binding, check_exchange
from shmq.model.routing.topic import check_key

#: The most exchanges of a page, and the most bindings that are drawn.
_MOST: Final = 40
_MOST_DRAWN: Final = 120

_Bindings = dict[str, list[Binding]]


@page("/exchanges")
def show_exchanges(visit: Visit) -> Shown:
    """All exchanges, drawn; with ``exchange`` the route of a message with that key."""
    try:
        all_of_them = visit.console.broker.list_exchanges()
    except Unsupported:
        all_of_them = []
    seen = [one for one in all_of_them if visit.caller.sees("exchange", one.name)]
    shown = seen[:_MOST]
    bindings = _find_bindings(visit, shown)
    asked = visit.text("exchange", 255)
    route = _trace_route(visit, asked, seen, bindings) if asked is not None else None
    hit = [("queue", name) for name in route.queues] if route is not None else []
    hit += [("stream", name) for name in route.streams] if route is not None else []
    count = sum(map(len, bindings.values()))
    return Shown(
        "exchanges.html",
        {
            "exchanges": shown,
            "bindings": bindings,
            "more": len(seen) - len(shown),
            "drawing": drawing_of(shown, bindings, hit) if 0 < count <= _MOST_DRAWN else None,
            "count": count,
            "asked": asked,
            "key": visit.query.get("key", ""),
            "headers": visit.query.get("headers", ""),
            "route": route,
        },
    )


@page("/exchanges/{name}")
def show_exchange(visit: Visit) -> Shown:
    """One exchange: what it passes on, to which targets, and how often."""
    name = visit["name"]
    found = visit.ask("get_exchange", name=name)
    alternates = [one.name for one in visit.latest.exchanges if one.alternate == name]
    return Shown(
        "exchange.html",
        {
            "exchange": found,
            "sources": [one for one in alternates if visit.caller.sees("exchange", one)],
            "findings": findings_of(visit, "exchange", name),
        },
    )


def _find_bindings(visit: Visit, shown: list[ExchangeSummary]) -> _Bindings:
    """The bindings to what the caller may see."""
    found: _Bindings = {}
    for one in shown:
        try:
            with visit.console.broker.exchange(one.name) as exchange:
                found[one.name] = [
                    binding
                    for binding in exchange.bindings()
                    if visit.caller.sees(binding.kind, binding.target)
                ]
        except NoSuchExchange:
            found[one.name] = []
    return found


def _trace_route(
    visit: Visit, name: str, seen: list[ExchangeSummary], bindings: _Bindings
) -> Route:
    """Where a message with that key and those headers would go; nothing is put."""
    if name not in {one.name for one in seen}:
        raise Problem(404, "not-found", f"exchange {name!r} does not exist")
    rest = _find_bindings(visit, [one for one in seen if one.name not in bindings])
    table = Table()
    for one in seen:
        table.apply(check_exchange(one.name, one.kind, one.alternate))
    for one in seen:
        for it in {**bindings, **rest}[one.name]:
            binding = check_binding(one.kind, it.target, it.key, it.kind, it.headers, it.match)
            table.apply(["bind", one.name, *binding])
    key = check_key(visit.query.get("key", "").strip())
    return table.route(name, key, _parse_headers(visit.text("headers")))


def _parse_headers(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        found = decode_json(given)
    except ValueError as error:
        raise Problem.invalid(f"headers: they are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Problem.invalid('headers: give an object, such as {"region": "EU"}')
    return found
