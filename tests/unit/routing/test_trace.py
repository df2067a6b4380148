"""Where a message would go, exchange by exchange."""

from __future__ import annotations

import pytest

import shmq
from shmq.api import Binding
from shmq.model.routing.trace import Shown, matches, trace


@pytest.mark.parametrize(
    ("kind", "binding", "key", "headers", "expected"),
    [
        ("fanout", Binding("q"), "any", {}, True),
        ("direct", Binding("q", key="a"), "a", {}, True),
        ("direct", Binding("q", key="a"), "b", {}, False),
        ("topic", Binding("q", key="a.*"), "a.b", {}, True),
        ("topic", Binding("q", key="a.*"), "a.b.c", {}, False),
        ("topic", Binding("q", key="a.#"), "a", {}, True),
        ("headers", Binding("q", headers={"x": 1, "y": None}), "", {"x": 1, "y": 2}, True),
        ("headers", Binding("q", headers={"x": 1, "y": None}), "", {"x": 1}, False),
        ("headers", Binding("q", headers={"x": 1, "y": 2}, match="any"), "", {"y": 2}, True),
        ("headers", Binding("q", headers={"x": True}), "", {"x": 1}, False),
    ],
)
def test_a_binding_matches_as_its_exchange_routes(
    kind: str, binding: Binding, key: str, headers: dict[str, object], expected: bool
) -> None:
    assert matches(kind, binding, key, headers) is expected


def test_exchanges_that_lead_to_each_other_are_passed_once() -> None:
    table = {
        "a": Shown("fanout", None, [Binding("b", "exchange"), Binding("q")]),
        "b": Shown("fanout", None, [Binding("a", "exchange")]),
    }
    assert [step.exchange for step in trace("a", "", {}, table.get)] == ["a", "b"]


def test_an_alternate_is_followed_only_where_nothing_matches() -> None:
    table = {
        "a": Shown("direct", "rest", [Binding("q", key="k")]),
        "rest": Shown("fanout", None, [Binding("other")]),
    }
    assert [step.alternate for step in trace("a", "k", {}, table.get)] == [None]
    assert [step.exchange for step in trace("a", "x", {}, table.get)] == ["a", "rest"]


def test_an_alternate_that_does_not_exist_ends_the_way() -> None:
    def look(name: str) -> Shown:
        if name != "a":
            raise shmq.NoSuchExchange(name)
        return Shown("direct", "missing", [])

    (step,) = trace("a", "x", {}, look)
    assert step.alternate == "missing"


def test_an_exchange_that_does_not_exist_is_refused() -> None:
    def look(name: str) -> Shown:
        raise shmq.NoSuchExchange(name)

    with pytest.raises(shmq.NoSuchExchange):
        trace("a", "x", {}, look)
