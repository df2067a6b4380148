"""Schemas by HTTP."""

from __future__ import annotations

import pytest

import shmq
from tests.support.console import Console

ORDERS = "/schemas/orders"
FIRST = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
STRICTER = {**FIRST, "required": ["n", "m"]}


@pytest.fixture
def orders(shop: shmq.Broker) -> shmq.Queue:
    return shop.create_queue("orders", dead_letter=None)


def test_a_schema_is_set_in_versions_and_shown(site: Console, orders: shmq.Queue) -> None:
    assert site.api("GET", ORDERS).json == {"items": []}
    assert site.api("POST", ORDERS, {"schema": FIRST}).json == {"version": 1}
    assert site.api("POST", ORDERS, {"schema": FIRST}).json == {"version": 1}
    second = {"schema": STRICTER, "compatibility": "none"}
    assert site.api("POST", ORDERS, second).json == {"version": 2}
    shown = site.api("GET", ORDERS).json["items"]
    assert [(one["version"], one["schema"]) for one in shown] == [(1, FIRST), (2, STRICTER)]
    assert site.api("GET", f"{ORDERS}/1").json == shown[0]
    assert site.api("GET", f"{ORDERS}/3").code == "not-found"


def test_a_schema_that_is_not_compatible_is_refused_with_the_field(
    site: Console, orders: shmq.Queue
) -> None:
    site.api("POST", ORDERS, {"schema": FIRST})
    for path in (ORDERS, f"{ORDERS}/check"):
        told = site.api("POST", path, {"schema": STRICTER})
        assert (told.status, told.code, told.json["field"]) == (422, "schema", "m")
    assert len(site.api("GET", ORDERS).json["items"]) == 1


def test_a_check_sets_nothing(site: Console, orders: shmq.Queue) -> None:
    assert site.api("POST", f"{ORDERS}/check", {"schema": FIRST}).status == 204
    assert site.api("GET", ORDERS).json == {"items": []}


def test_a_stream_has_a_schema_as_well(site: Console, shop: shmq.Broker) -> None:
    shop.create_stream("clicks", 1)
    assert site.api("POST", "/schemas/clicks", {"schema": FIRST}).json == {"version": 1}


def test_a_name_without_a_queue_or_a_stream_has_none(site: Console, shop: shmq.Broker) -> None:
    assert site.api("GET", ORDERS).code == "not-found"
    assert site.api("POST", ORDERS, {"schema": FIRST}).code == "not-found"


def _nested(levels: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(levels):
        found = {"properties": {"a": found}}
    return found


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, "invalid"),
        ({"schema": []}, "invalid"),
        ({"schema": {"type": "ring"}}, "invalid"),
        ({"schema": {"$ref": "#/missing"}}, "invalid"),
        ({"schema": {"$ref": "https://example.com/x"}}, "invalid"),
        ({"schema": {"$ref": "#"}}, "schema"),
        ({"schema": {"allOf": [{"$ref": "#"}]}}, "schema"),
        ({"schema": {"pattern": "("}}, "invalid"),
        ({"schema": {"properties": {"\ud800": {}}}}, "invalid"),
        ({"schema": _nested(240)}, "invalid"),
        ({"schema": {"description": "x" * (1 << 18)}}, "invalid"),
        ({"schema": {}, "compatibility": "sideways"}, "invalid"),
    ],
    ids=lambda given: str(given)[:60],
)
def test_what_is_no_schema_is_refused(
    site: Console, orders: shmq.Queue, asked: dict[str, object], code: str
) -> None:
    told = site.api("POST", ORDERS, asked)
    assert told.status in {400, 422}, told
    assert told.code == code
    assert site.api("GET", ORDERS).json == {"items": []}
