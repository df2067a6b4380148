"""Exchanges by HTTP, and where a key would go."""

from __future__ import annotations

import json
from typing import Any

import pytest

import shmq
from tests.support.console import Console
from tests.support.waiting import eventually


@pytest.fixture
def events(shop: shmq.Broker) -> shmq.Exchange:
    """A topic exchange that is bound to a queue."""
    shop.create_queue("orders", capacity=1, dead_letter=None)
    exchange = shop.create_exchange("events", "topic")
    exchange.bind("orders", "order.#")
    return exchange


def route(site: Console, name: str = "events", **query: Any) -> Any:
    return site.api("GET", f"/exchanges/{name}/route", **query).json


def test_an_exchange_is_made_once_and_found_again(site: Console, shop: shmq.Broker) -> None:
    wanted = {"kind": "fanout", "alternate": "rest"}
    made = site.api("PUT", "/exchanges/events", wanted)
    assert (made.status, made.json) == (
        201,
        {"name": "events", **wanted, "published": 0, "unrouted": 0, "bindings": []},
    )
    assert site.api("PUT", "/exchanges/events", wanted).status == 200
    assert site.api("PUT", "/exchanges/events", {}).status == 200
    told = site.api("PUT", "/exchanges/events", {"kind": "topic", "alternate": None})
    assert (told.status, told.code) == (409, "exists")
    assert told.json["differences"] == {
        "kind": {"wanted": "topic", "there": "fanout"},
        "alternate": {"wanted": None, "there": "rest"},
    }


def test_the_list_shows_what_an_expression_selects(
    site: Console, events: shmq.Exchange, shop: shmq.Broker
) -> None:
    shop.create_exchange("other")

    def listed() -> bool:
        page = site.api("GET", "/exchanges", where="kind = 'topic'", columns="bindings").json
        return bool(page["items"] == [{"name": "events", "bindings": 1}])

    eventually(listed, "events alone is listed")


def test_a_binding_is_made_shown_and_removed(site: Console, events: shmq.Exchange) -> None:
    binding = {"target": "orders", "key": "refund.*"}
    done = [site.api("POST", "/exchanges/events/bind", binding).json["changed"] for _ in range(2)]
    assert done == [True, False]
    shown = site.api("GET", "/exchanges/events").json["bindings"]
    assert [one["key"] for one in shown] == ["order.#", "refund.*"]
    done = [site.api("POST", "/exchanges/events/unbind", binding).json["changed"] for _ in range(2)]
    assert done == [True, False]


def test_headers_are_bound_and_matched(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("vip", dead_letter=None)
    shop.create_exchange("events", "headers")
    binding = {"target": "vip", "headers": {"level": 3, "paid": None}, "match": "any"}
    assert site.api("POST", "/exchanges/events/bind", binding).json == {"changed": True}
    (shown,) = site.api("GET", "/exchanges/events").json["bindings"]
    assert shown == {**binding, "kind": "queue", "key": ""}
    assert route(site, header=json.dumps({"level": 3}))["queues"] == ["vip"]
    assert route(site, header=json.dumps({"level": "3"}))["queues"] == []


def test_a_message_is_published_to_what_its_key_leads_to(
    site: Console, events: shmq.Exchange, shop: shmq.Broker
) -> None:
    done = site.api("POST", "/exchanges/events/publish", {"body": {"n": 1}, "key": "order.paid"})
    assert (done.status, done.json) == (201, {"delivered": 1, "duplicates": 0})
    message = shop.queue("orders").get()
    assert message is not None
    assert message.body == {"n": 1}
    stray = {"body": 1, "key": "other"}
    done = site.api("POST", "/exchanges/events/publish", stray)
    assert (done.status, done.json) == (201, {"delivered": 0, "duplicates": 0})
    told = site.api("POST", "/exchanges/events/publish", {**stray, "mandatory": True})
    assert (told.status, told.code) == (422, "unroutable")
    told = site.api("POST", "/exchanges/events/publish", {**stray, "mandatory": "yes"})
    assert (told.status, told.code) == (400, "invalid")
    shown = site.api("GET", "/exchanges/events").json
    assert (shown["published"], shown["unrouted"]) == (3, 2)

    def listed() -> bool:
        page = site.api("GET", "/exchanges", where="unrouted > 0", columns="published").json
        return bool(page["items"] == [{"name": "events", "published": 3}])

    eventually(listed, "the list shows what was published")


def test_a_queue_that_is_full_is_named(
    site: Console, events: shmq.Exchange, shop: shmq.Broker
) -> None:
    shop.queue("orders").put("x")
    told = site.api("POST", "/exchanges/events/publish", {"body": 1, "key": "order"})
    assert (told.status, told.code, told.headers["retry-after"]) == (429, "full", "1")
    assert (told.json["delivered"], list(told.json["refused"])) == (0, ["orders"])


def test_a_route_is_told_step_by_step_and_publishes_nothing(
    site: Console, events: shmq.Exchange, shop: shmq.Broker
) -> None:
    shop.create_stream("log", 1)
    shop.create_exchange("copies", "fanout", alternate="nowhere").bind("log", kind="stream")
    events.bind("copies", "order.paid", kind="exchange")
    found = route(site, key="order.paid")
    assert (found["queues"], found["streams"], found["hidden"]) == (["orders"], ["log"], False)
    assert [step["exchange"] for step in found["steps"]] == ["events", "copies"]
    assert shop.queue("orders").stats().depth == 0


def test_a_message_that_matches_no_binding_takes_the_alternate(
    site: Console, events: shmq.Exchange, shop: shmq.Broker
) -> None:
    shop.create_exchange("first", "direct", "events")
    found = route(site, "first", key="order.new")
    assert (found["steps"][0]["alternate"], found["queues"]) == ("events", ["orders"])


def test_an_exchange_is_deleted(site: Console, events: shmq.Exchange) -> None:
    assert site.api("DELETE", "/exchanges/events").status == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/route")):
        assert site.api(method, f"/exchanges/events{path}").code == "not-found"


@pytest.mark.parametrize(
    ("method", "path", "body", "query"),
    [
        ("PUT", "", {"kind": "ring"}, {}),
        ("PUT", "", {"alternate": "a/b"}, {}),
        ("POST", "/bind", {"target": "orders", "key": "a*"}, {}),
        ("POST", "/bind", {"target": "orders", "headers": {"a": 1}}, {}),
        ("POST", "/bind", {"target": "orders", "headers": {"a": [1]}}, {}),
        ("POST", "/bind", {"target": "missing"}, {}),
        ("POST", "/bind", {"target": "orders", "kind": "stream"}, {}),
        ("POST", "/bind", {}, {}),
        ("POST", "/publish", {"body": 1, "priority": 99, "key": "order"}, {}),
        ("POST", "/publish", {"body": 1, "key": "x" * 300}, {}),
        ("POST", "/publish", {"key": "order"}, {}),
        ("GET", "/route", None, {"header": "[]"}),
        ("GET", "/route", None, {"header": "{"}),
        ("GET", "/route", None, {"keys": "a"}),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_with_the_reason(
    site: Console,
    events: shmq.Exchange,
    method: str,
    path: str,
    body: object,
    query: dict[str, object],
) -> None:
    told = site.api(method, f"/exchanges/events{path}", body, **query)
    assert told.status in {400, 404, 409}, told
    assert told.code in {"invalid", "not-found", "exists"}
    assert len(events.bindings()) == 1
