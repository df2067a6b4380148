"""Queues, streams and exchanges side by side: ``list``, ``stats``, ``top``, ``delete``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick

Invoke = Callable[..., Result]


@pytest.fixture
def kinds(broker: shmq.Broker) -> Iterator[shmq.Broker]:
    """A broker with a queue ``jobs``, a stream ``clicks`` and an exchange ``orders``."""
    with (
        broker.create_queue("jobs", dead_letter=None) as jobs,
        broker.create_stream("clicks", partitions=2, ring_bytes=65536) as clicks,
        broker.create_exchange("orders", "topic") as orders,
    ):
        jobs.put("a")
        clicks.append_many([b"1", b"2", b"3"])
        orders.bind("jobs", "orders.#")
        yield broker
    for name in [one.name for one in broker.list_streams()]:
        broker.delete_stream(name)
    for name in [one.name for one in broker.list_exchanges()]:
        broker.delete_exchange(name)


def json_of(ran: Result) -> Any:
    assert ran.exit_code == Code.OK, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("command", ["list", "stats", "top"])
def test_each_kind_is_shown_and_can_be_asked_for_alone(
    invoke: Invoke, kinds: shmq.Broker, command: str
) -> None:
    told = json_of(invoke(command, "--json"))

    assert {one["name"]: one["kind"] for one in told} == {
        "jobs": "queue",
        "clicks": "stream",
        "orders": "exchange",
    }
    shown = invoke(command)
    assert all(name in shown.stdout for name in ("jobs", "clicks", "orders"))
    for one in told:
        assert json_of(invoke(command, "--kind", one["kind"], "--json"))[0]["name"] == one["name"]
    two = invoke(command, "--kind", "queue", "--kind", "stream").stdout
    assert "clicks" in two and "jobs" in two and "orders" not in two


def test_a_list_says_what_each_holds(invoke: Invoke, kinds: shmq.Broker) -> None:
    rows = [" ".join(line.split()) for line in invoke("list").stdout.splitlines()]

    assert rows[0] == "name kind visible delayed in flight capacity also"
    assert rows[1] == "jobs queue 1 0 0 16384"
    assert rows[2].startswith("clicks stream 3 2 partitions, ")
    assert rows[3] == "orders exchange topic, 1 binding"


def test_stats_of_a_name_are_those_of_what_has_it(invoke: Invoke, kinds: shmq.Broker) -> None:
    stream = json_of(invoke("stats", "clicks", "--json"))
    assert (stream["kind"], stream["records"], stream["partitions"]) == ("stream", 3, 2)
    assert stream["options"]["ring_bytes"] == 65536
    exchange = json_of(invoke("stats", "orders", "--json"))
    assert (exchange["type"], exchange["bindings"]) == ("topic", 1)
    assert "records" in invoke("stats", "clicks").stdout
    flagged = json_of(invoke("stats", "-q", "jobs", "--json"))
    named = json_of(invoke("stats", "jobs", "--json"))
    assert flagged.keys() == named.keys()
    assert (named["kind"], named["depth"]) == ("queue", 1)
    assert invoke("stats", "-q", "clicks").exit_code == Code.NO_QUEUE


def test_names_stand_without_a_flag(invoke: Invoke, quick: Quick, broker: shmq.Broker) -> None:
    assert invoke("create", "jobs", "--dead-letter", "none").exit_code == Code.OK
    assert invoke("produce", "jobs", "-m", "tea").exit_code == Code.OK
    assert "tea" in invoke("peek", "jobs").stdout
    assert invoke("who", "jobs").exit_code == Code.OK
    assert quick("consume", "jobs").text == "tea\n"
    assert invoke("purge", "jobs", "--yes").exit_code == Code.OK
    assert invoke("delete", "jobs", "--yes").stdout == "queue 'jobs' is deleted\n"
    assert broker.list_queues() == []


def test_delete_finds_what_has_the_name(invoke: Invoke, kinds: shmq.Broker) -> None:
    assert invoke("delete", "clicks", "-y").stdout == "stream 'clicks' is deleted\n"
    assert json_of(invoke("delete", "orders", "-y", "--json")) == {
        "namespace": kinds.namespace,
        "kind": "exchange",
        "deleted": "orders",
    }
    assert (kinds.list_streams(), kinds.list_exchanges()) == ([], [])
    gone = invoke("delete", "orders", "-y")
    assert gone.exit_code == Code.NO_QUEUE
    assert "no queue, stream or exchange 'orders' exists" in gone.stderr
    assert "did you mean 'jobs'?" in invoke("stats", "job").stderr


def test_delete_asks_which_kind_is_meant_by_a_name_of_two(
    invoke: Invoke, kinds: shmq.Broker
) -> None:
    kinds.create_stream("jobs", 1, allow_same_name=True, ring_bytes=65536).close()

    asked = invoke("delete", "jobs", "-y")
    assert asked.exit_code == Code.USAGE
    assert "'jobs' names a queue and a stream: say which with --kind" in asked.stderr
    wrong = invoke("delete", "-q", "jobs", "--kind", "stream", "-y")
    assert "-q names a queue" in wrong.stderr
    assert invoke("delete", "jobs", "--kind", "stream", "-y").exit_code == Code.OK
    assert [one.name for one in kinds.list_queues()] == ["jobs"]
    assert invoke("delete", "-q", "jobs", "-y").exit_code == Code.OK
