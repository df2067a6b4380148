"""Rights of tokens to streams, groups, exchanges and schemas by HTTP; what guards a change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from tests.support.console import Console, Reply, console
from tests.support.waiting import eventually

PRODUCER, READER, BILLER, OWNER = ("p" * 40, "r" * 40, "b" * 40, "o" * 40)
TOKENS = {
    PRODUCER: {"produce": ["clicks", "events"]},
    READER: {"consume": ["clicks", "events", "orders"]},
    BILLER: {"consume": ["clicks/billing"], "admin": ["clicks/billing"]},
    OWNER: {"admin": ["clicks", "events", "orders"], "produce": ["orders"]},
}


@pytest.fixture(scope="module")
def guarded(place: str) -> Iterator[Console]:
    """A console that asks for a token."""
    with console(place, tokens=TOKENS) as made:
        made.headers = {}
        yield made


@pytest.fixture(scope="module")
def reading(place: str) -> Iterator[Console]:
    """A console that changes nothing."""
    with console(place, changes=False) as made:
        yield made


@pytest.fixture
def filled(shop: shmq.Broker) -> shmq.Broker:
    """One of each."""
    stream = shop.create_stream("clicks", 1)
    stream.append("secret")
    stream.group("billing")
    stream.group("audit")
    shop.create_queue("orders", dead_letter=None)
    shop.create_queue("hidden", dead_letter=None)
    exchange = shop.create_exchange("events", "fanout")
    exchange.bind("orders")
    exchange.bind("hidden")
    return shop


def ask(site: Console, token: str | None, method: str, path: str, body: Any = None) -> Reply:
    shown = {} if token is None else {"Authorization": f"Bearer {token}"}
    return site.ask(method, f"/api/v1{path}", body, shown)


RECORD = {"body": 1}
RESET = {"to": "latest"}
SCHEMA: dict[str, Any] = {"schema": {}}
FIRST = "/streams/clicks/partitions/0/records"


@pytest.mark.parametrize(
    ("token", "method", "path", "body", "status"),
    [
        (None, "GET", "/streams/clicks", None, 401),
        ("x" * 40, "GET", "/streams/clicks", None, 401),
        (PRODUCER, "GET", "/streams/clicks", None, 200),
        (PRODUCER, "GET", FIRST, None, 403),
        (PRODUCER, "GET", f"{FIRST}/0/value", None, 403),
        (PRODUCER, "POST", "/streams/clicks/records", RECORD, 201),
        (READER, "GET", FIRST, None, 200),
        (READER, "POST", "/streams/clicks/records", RECORD, 403),
        (READER, "PUT", "/streams/clicks", {}, 403),
        (READER, "PUT", "/streams/other", {}, 404),
        (READER, "DELETE", "/streams/clicks", None, 403),
        (READER, "POST", "/streams/clicks/repartition", {"partitions": 2}, 403),
        (BILLER, "GET", "/streams/clicks", None, 200),
        (BILLER, "GET", FIRST, None, 200),
        (BILLER, "GET", "/streams/clicks/groups/billing", None, 200),
        (BILLER, "GET", "/streams/clicks/groups/audit", None, 403),
        (BILLER, "POST", "/streams/clicks/groups/billing/reset", RESET, 200),
        (BILLER, "DELETE", "/streams/clicks/groups/audit", None, 403),
        (BILLER, "DELETE", "/streams/clicks", None, 403),
        (OWNER, "POST", "/streams/clicks/groups/audit/reset", RESET, 200),
        (OWNER, "GET", FIRST, None, 403),
        (READER, "GET", "/exchanges/events", None, 200),
        (READER, "POST", "/exchanges/events/publish", RECORD, 403),
        (READER, "POST", "/exchanges/events/bind", {"target": "orders"}, 403),
        (READER, "DELETE", "/exchanges/events", None, 403),
        (OWNER, "POST", "/exchanges/events/bind", {"target": "orders"}, 200),
        (OWNER, "POST", "/exchanges/events/bind", {"target": "hidden"}, 404),
        (OWNER, "POST", "/exchanges/events/bind", {"target": "clicks", "kind": "stream"}, 403),
        (OWNER, "PUT", "/exchanges/events", {"alternate": "hidden"}, 404),
        (PRODUCER, "POST", "/exchanges/events/publish", RECORD, 201),
        (BILLER, "GET", "/exchanges/events", None, 404),
        (READER, "GET", "/schemas/orders", None, 200),
        (READER, "POST", "/schemas/orders/check", SCHEMA, 204),
        (READER, "POST", "/schemas/orders", SCHEMA, 403),
        (OWNER, "POST", "/schemas/orders", SCHEMA, 200),
        (OWNER, "POST", "/schemas/clicks", SCHEMA, 200),
        (PRODUCER, "GET", "/schemas/hidden", None, 404),
    ],
)
def test_a_token_does_what_its_patterns_allow(
    guarded: Console,
    filled: shmq.Broker,
    token: str | None,
    method: str,
    path: str,
    body: Any,
    status: int,
) -> None:
    told = ask(guarded, token, method, path, body)
    assert told.status == status, told
    if status >= 400:
        assert told.code == {401: "unauthorized", 403: "denied", 404: "not-found"}[status]


def test_names_that_a_token_has_no_right_to_are_not_shown(
    guarded: Console, filled: shmq.Broker
) -> None:
    eventually(
        lambda: len(ask(guarded, READER, "GET", "/streams").json["items"]) == 1,
        "the console sees the stream",
    )
    assert ask(guarded, BILLER, "GET", "/exchanges").json["items"] == []
    groups = ask(guarded, BILLER, "GET", "/streams/clicks").json["groups"]
    assert [one["name"] for one in groups] == ["billing"]
    shown = ask(guarded, READER, "GET", "/exchanges/events").json
    assert [one["target"] for one in shown["bindings"]] == ["orders"]
    found = ask(guarded, READER, "GET", "/exchanges/events/route?key=x").json
    assert (found["queues"], found["hidden"]) == (["orders"], True)


def test_a_group_that_a_token_may_not_look_at_is_shown_nowhere(
    guarded: Console, filled: shmq.Broker
) -> None:
    """Groups that lag and have no member are findings, too."""
    eventually(
        lambda: len(ask(guarded, OWNER, "GET", "/overview").json["findings"]) == 2,
        "the console sees both groups",
    )
    shown = {"Authorization": f"Bearer {BILLER}", "Accept": "text/html"}
    overview = ask(guarded, BILLER, "GET", "/overview")
    assert [one["group"] for one in overview.json["findings"]] == ["billing"]
    answers = [overview, ask(guarded, BILLER, "GET", "/streams")]
    answers += [guarded.ask("GET", path, headers=shown) for path in (
        "/", "/streams", "/streams/clicks", "/metrics",
    )]  # fmt: skip
    for answer in answers:
        assert answer.status == 200
        assert b"audit" not in answer.content


def test_metrics_are_those_of_the_names_that_a_token_has_a_right_to(
    guarded: Console, filled: shmq.Broker
) -> None:
    def of(token: str) -> str:
        shown = {"Authorization": f"Bearer {token}"}
        return guarded.ask("GET", "/metrics", headers=shown).content.decode()

    eventually(lambda: 'queue="orders"' in of(READER), "the console sees the queue")
    assert "hidden" not in of(READER)
    assert re.search(r"shmq_namespace_queues{[^}]*} 1.0\n", of(READER))
    assert re.search(r"shmq_namespace_queues{[^}]*} 0.0\n", of(BILLER))


CHANGES = [
    ("PUT", "/streams/clicks", {}),
    ("DELETE", "/streams/clicks", None),
    ("POST", "/streams/clicks/records", RECORD),
    ("POST", "/streams/clicks/repartition", {"partitions": 2}),
    ("POST", "/streams/clicks/groups/billing/reset", RESET),
    ("DELETE", "/streams/clicks/groups/billing", None),
    ("PUT", "/exchanges/events", {}),
    ("DELETE", "/exchanges/events", None),
    ("POST", "/exchanges/events/bind", {"target": "orders"}),
    ("POST", "/exchanges/events/unbind", {"target": "orders"}),
    ("POST", "/exchanges/events/publish", RECORD),
    ("POST", "/schemas/orders", SCHEMA),
]


def test_a_console_that_only_shows_changes_nothing(reading: Console, filled: shmq.Broker) -> None:
    for method, path, body in CHANGES:
        told = reading.api(method, path, body)
        assert (told.status, told.code) == (403, "read-only"), (method, path)


@pytest.mark.parametrize("headers", [{"X-Shmq-CSRF": None}, {"Origin": "http://example.com"}])
def test_a_change_that_a_foreign_page_might_have_sent_is_refused(
    site: Console, filled: shmq.Broker, headers: dict[str, str | None]
) -> None:
    for method, path, body in CHANGES:
        told = site.ask(method, f"/api/v1{path}", body, headers)
        assert (told.status, told.code) == (403, "csrf"), (method, path)


@pytest.mark.prove
def test_a_console_that_only_shows_still_shows_and_checks(
    reading: Console, filled: shmq.Broker
) -> None:
    assert reading.api("GET", FIRST).status == 200
    assert reading.api("POST", "/schemas/orders/check", SCHEMA).status == 204


def test_only_names_that_a_token_may_see_are_suggested(
    guarded: Console, filled: shmq.Broker
) -> None:
    def suggests(path: str, token: str) -> str:
        told = ask(guarded, token, "GET", path)
        assert (told.status, told.code) == (404, "not-found")
        return str(told.json["detail"])

    eventually(
        lambda: "did you mean 'orders'?" in suggests("/queues/ordres", OWNER), "it is suggested"
    )
    assert "did you mean 'clicks'?" in suggests("/streams/clikcs", OWNER)
    assert "hidden" not in suggests("/queues/hiden", OWNER).replace("'hiden'", "")
    other = "a stream has this name: see GET /api/v1/streams/clicks."
    assert other in suggests("/queues/clicks", OWNER)
    assert "has this name" not in suggests("/streams/hidden", OWNER)
