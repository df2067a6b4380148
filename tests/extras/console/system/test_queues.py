"""Queues by HTTP: lists, one queue, and what changes it."""

from __future__ import annotations

import pytest

import shmq
from tests.support.console import Console
from tests.support.waiting import eventually


def observed(site: Console, *names: str) -> None:
    """Return once the console has looked at these queues."""
    eventually(
        lambda: {*names} <= {one["name"] for one in site.api("GET", "/queues").json["items"]},
        f"the console sees {names}",
    )


def test_a_list_comes_in_pages_that_together_have_every_queue_once(
    site: Console, shop: shmq.Broker
) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in names:
        shop.create_queue(name, dead_letter=None)
    observed(site, *names)
    found, after = [], ""
    while after is not None:
        page = site.api("GET", "/queues", limit=2, **({"after": after} if after else {})).json
        assert len(page["items"]) <= 2
        found += [one["name"] for one in page["items"]]
        after = page["next"]
    assert found == names


def test_a_list_has_what_an_expression_selects_and_the_columns_asked_for(
    site: Console, shop: shmq.Broker
) -> None:
    shop.create_queue("empty")
    shop.create_queue("busy").put("x")
    observed(site, "busy", "empty")

    def listed() -> bool:
        page = site.api("GET", "/queues", where="depth > 0", columns="depth").json
        return bool(page["items"] == [{"name": "busy", "depth": 1}])

    eventually(listed, "busy alone is listed")


def test_a_sorted_list_begins_with_the_largest(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("small").put("x")
    shop.create_queue("large").put_many(["x"] * 9)

    def listed() -> bool:
        page = site.api("GET", "/queues", sort="depth", limit=2, columns="depth").json
        return bool([one["name"] for one in page["items"]] == ["large", "small"])

    eventually(listed, "the largest comes first")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"limit": "0"}, "limit must be at least 1, not '0'"),
        ({"limit": "many"}, "limit must be an integer, not 'many'"),
        ({"where": "depth >"}, "where"),
        ({"where": "nothing = 1"}, "nothing"),
        ({"columns": "depht"}, "depht"),
        ({"sort": "depht"}, "depht"),
        ({"limits": "1"}, "did you mean 'limit'"),
    ],
)
def test_a_wrong_parameter_is_named(site: Console, query: dict[str, str], told: str) -> None:
    reply = site.api("GET", "/queues", **query)
    assert (reply.status, reply.code) == (400, "invalid")
    assert told in reply.json["detail"]


def test_a_queue_is_made_once_and_refused_with_the_differences(
    site: Console, shop: shmq.Broker
) -> None:
    made = site.api("PUT", "/queues/jobs", {"capacity": 100})
    assert (made.status, made.json["options"]["capacity"]) == (201, 100)
    assert site.api("PUT", "/queues/jobs", {"capacity": 100}).status == 200
    reply = site.api("PUT", "/queues/jobs", {"capacity": 200})
    assert (reply.status, reply.code) == (409, "exists")
    assert reply.json["differences"] == {"capacity": {"wanted": 200, "there": 100}}
    assert shop.queue("jobs").options.capacity == 100


def test_an_option_that_does_not_exist_is_refused_with_the_right_one(site: Console) -> None:
    reply = site.api("PUT", "/queues/wrong", {"capacty": 100})
    assert (reply.status, reply.code) == (400, "invalid")
    assert "did you mean 'capacity'" in reply.json["detail"]


def test_identities_are_strings_as_a_browser_would_round_them(
    site: Console, shop: shmq.Broker
) -> None:
    identity = shop.create_queue("exact").identity
    assert site.api("GET", "/queues/exact").json["identity"] == str(identity)


def test_a_deleted_queue_is_gone(site: Console, shop: shmq.Broker) -> None:
    shop.create_queue("old", dead_letter=None)
    assert site.api("DELETE", "/queues/old").status == 204
    assert shop.queue_names() == []
    reply = site.api("DELETE", "/queues/old")
    assert (reply.status, reply.code) == (404, "not-found")
    detail = reply.json["detail"]
    assert "create it first (PUT /api/v1/queues/NAME), or see GET /api/v1/queues" in detail
    assert "shmq list" not in detail


def test_attachments_name_the_processes_and_mark_the_console_itself(
    site: Console, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("watched")
    queue.put("x")
    held = queue.get()
    found = site.api("GET", "/queues/watched/attachments").json["items"]
    assert {one["pid"] for one in found if one["console"]} == {site.process.pid}
    (mine,) = [one for one in found if not one["console"]]
    assert mine["leases"] == 1
    held.ack()


def test_a_purge_counts_what_it_removed(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("full")
    queue.put_many(["x"] * 7)
    assert site.api("POST", "/queues/full/purge", {}).json == {"count": 7}
    assert queue.qsize() == 0


def test_a_redrive_is_counted_before_it_is_made(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("orders")
    queue.put_many(["a", "b", "c"])
    for _ in range(3):
        queue.get().reject()
    counted = site.api("GET", "/queues/orders/redrive", where="sequence < 3")
    assert counted.json == {"count": 2, "more": False}
    assert queue.qsize() == 0
    done = site.api("POST", "/queues/orders/redrive", {"where": "sequence < 3"})
    assert done.json == {"count": 2}
    assert site.api("GET", "/queues/orders.dlq/redrive").json == {"count": 1, "more": False}
    assert queue.qsize() == 2


def test_messages_move_to_another_queue(site: Console, shop: shmq.Broker) -> None:
    queue, target = shop.create_queue("orders"), shop.create_queue("orders2")
    queue.put_many(["a", "b", "c"])
    assert site.api("POST", "/queues/orders/move", {"to": "orders2", "limit": 2}).json == {
        "count": 2
    }
    assert (queue.qsize(), target.qsize()) == (1, 2)
    for body, status in (
        ({"to": "nowhere"}, 404),
        ({"to": "orders"}, 400),
        ({}, 400),
        ({"to": 7}, 400),
    ):
        assert site.api("POST", "/queues/orders/move", body).status == status, body
    assert queue.qsize() == 1


def test_the_history_of_a_queue_has_a_value_for_each_look(site: Console, shop: shmq.Broker) -> None:
    queue = shop.create_queue("measured")

    def rates() -> bool:
        queue.put("x")
        found = site.api("GET", "/queues/measured/history").json
        assert len({len(column) for column in found.values()}) == 1
        return bool(found["rate_in"] and max(found["rate_in"]) > 0)

    eventually(rates, "a rate is shown")


def test_the_overview_tells_what_waits_in_numbers_and_in_words(
    site: Console, shop: shmq.Broker
) -> None:
    queue = shop.create_queue("lonely")
    queue.put_many(["x"] * 4)

    def told() -> bool:
        found = site.api("GET", "/overview").json
        return bool(found["waiting"] == 4 and found["worst"][0]["name"] == "lonely")

    eventually(told, "the overview has the queue")


def test_options_of_a_queue_are_altered_and_others_stay(site: Console, shop: shmq.Broker) -> None:
    orders = shop.create_queue("orders", ttl=60)

    reply = site.api("PATCH", "/queues/orders", {"max_deliveries": 9, "error_bytes": 0})

    assert reply.status == 200
    assert reply.json["options"] == orders.options.as_dict()
    assert (orders.options.max_deliveries, orders.options.error_bytes) == (9, 0)
    assert orders.options.ttl == 60
    assert site.api("PATCH", "/queues/orders", {}).json["options"] == reply.json["options"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ttl": 9, "priorities": 7}, "priorities=7 (it has 3), because"),
        ({"ttl": 9, "capacity": 262_145}, "capacity=262145 is more than 262144"),
        ({"ttl": 9, "arena_bytes": "x"}, "arena_bytes='x' must be an int"),
        ({"ttl": 9, "max_deliveries": "9"}, "max_deliveries='9' must be an int"),
        ({"ttl": 9, "error_bytes": 4097}, "error_bytes=4097 is out of range: 0 to 4096"),
        ({"ttl": 9, "<b>": 1}, "unknown option '<b>'"),
        ({"ttl": 9, "confirm": "disk"}, "needs a journal"),
        ({"ttl": 9, "name": "other"}, "unknown option 'name'"),
        ({"ttl": 9, "self": 1}, "unknown option 'self'"),
    ],
)
def test_what_is_wrong_with_one_option_alters_none(
    site: Console, shop: shmq.Broker, given: dict[str, object], why: str
) -> None:
    orders = shop.create_queue("orders")
    before = orders.options

    reply = site.api("PATCH", "/queues/orders", given)

    assert (reply.status, reply.code) == (400, "invalid")
    assert why in reply.json["detail"]
    assert orders.options == before
    assert site.api("PATCH", "/queues/none", {"ttl": 9}).code == "not-found"
