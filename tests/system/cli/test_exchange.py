"""``shmq exchange`` and ``shmq publish``."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick

Invoke = Callable[..., Result]


@pytest.fixture
def orders(broker: shmq.Broker, queue: shmq.Queue) -> shmq.Exchange:
    """A topic exchange, bound to ``jobs`` by ``orders.#``."""
    exchange = broker.create_exchange("orders", "topic")
    exchange.bind("jobs", "orders.#")
    return exchange


def bodies(queue: shmq.Queue) -> list[object]:
    return [message.body for message in queue.get_many(100, block=False)]


def test_what_is_made_and_bound_routes(invoke: Invoke, queue: shmq.Queue) -> None:
    made = invoke("exchange", "create", "x", "--kind", "topic")
    assert made.stdout.startswith("exchange 'x' (topic) is ready in namespace 'test-")
    assert invoke("exchange", "bind", "x", "-q", "jobs", "-k", "a.*").exit_code == Code.OK

    ran = invoke("publish", "x", "-k", "a.b", "-m", "one", "-m", "two")

    assert ran.stdout == "2 messages put by exchange 'x'\n"
    assert bodies(queue) == ["one", "two"]


def test_one_message_has_its_properties(
    invoke: Invoke, orders: shmq.Exchange, queue: shmq.Queue
) -> None:
    flags = ("--header", "a=1", "--priority", "high", "--group", "g", "--codec", "json")
    ran = invoke("publish", "orders", "-k", "orders", "-m", '{"n": 1}', *flags)

    assert ran.stdout == "1 message put by exchange 'orders'\n"
    message = queue.get(timeout=0)
    assert (message.body, message.headers, message.priority, message.group) == (
        {"n": 1},
        {"a": "1"},
        2,
        "g",
    )


def test_lines_are_messages(quick: Quick, orders: shmq.Exchange, queue: shmq.Queue) -> None:
    ran = quick("publish", "orders", "-k", "orders.x", "--json", stdin=b"1\n\n3\n")

    assert ran.json == {"exchange": "orders", "delivered": 3, "duplicates": 0, "unrouted": 0}
    assert bodies(queue) == ["1", "", "3"]


def test_what_leads_nowhere_is_refused(invoke: Invoke, orders: shmq.Exchange) -> None:
    ran = invoke("publish", "orders", "-k", "elsewhere", "-m", "lost", "--mandatory")

    assert ran.exit_code == Code.REFUSED
    assert "'orders'" in ran.stderr and len(ran.stderr.splitlines()) == 1
    assert ran.stdout == "0 messages put by exchange 'orders'\n"


def test_what_leads_nowhere_is_accepted_and_counted_where_it_is_not_mandatory(
    invoke: Invoke, orders: shmq.Exchange, broker: shmq.Broker
) -> None:
    broker.create_exchange("d", "direct")
    assert invoke("publish", "d", "-m", "lost").exit_code == Code.REFUSED
    for name, flags in (
        ("orders", ()),
        ("orders", ("--no-mandatory",)),
        ("d", ("--no-mandatory",)),
    ):
        ran = invoke("publish", name, "-k", "elsewhere", "-m", "lost", "-m", "too", *flags)
        assert ran.exit_code == 0
        assert ran.stdout == f"0 messages put by exchange {name!r}, 2 unrouted\n"
    given = ("publish", "orders", "-k", "elsewhere", "-m", "x", "--json")
    assert json.loads(invoke(*given).stdout)["unrouted"] == 1

    listed = json.loads(invoke("exchange", "list", "--json").stdout)
    assert [(each["published"], each["unrouted"]) for each in listed] == [(3, 3), (5, 5)]
    assert "5 unrouted" in invoke("list", "--kind", "exchange").stdout


def test_a_full_queue_is_named_and_the_others_are_counted(
    invoke: Invoke, orders: shmq.Exchange, broker: shmq.Broker
) -> None:
    broker.create_queue("tiny", capacity=1, dead_letter=None)
    orders.bind("tiny", "#")

    ran = invoke("publish", "orders", "-k", "orders", "-m", "1", "-m", "2")

    assert ran.exit_code == Code.REFUSED
    assert "'tiny'" in ran.stderr
    assert ran.stdout == "3 messages put by exchange 'orders'\n"


def test_a_duplicate_is_told(invoke: Invoke, broker: shmq.Broker) -> None:
    broker.create_queue("once", dedupe_window=60, dead_letter=None)
    broker.create_exchange("x", "fanout").bind("once")
    flags = ("publish", "x", "-m", "a", "--dedupe-id", "1")
    invoke(*flags)

    assert invoke(*flags).stdout == "0 messages put by exchange 'x', 1 dropped as duplicates\n"


def test_the_bindings_are_listed(invoke: Invoke, orders: shmq.Exchange, queue: shmq.Queue) -> None:
    invoke("exchange", "create", "h", "--kind", "headers", "--alternate", "orders")
    invoke("exchange", "bind", "h", "-q", "jobs", "--header", "a=1", "--header", "b")

    listed = invoke("exchange", "list").stdout.split("\n")
    assert [line.split() for line in listed if line] == [
        ["exchange", "kind", "bindings", "published", "unrouted", "alternate"],
        ["h", "headers", "1", "0", "0", "orders"],
        ["orders", "topic", "1", "0", "0"],
    ]
    assert "all: a=1, b" in invoke("exchange", "list", "h").stdout
    assert "orders.#" in invoke("exchange", "list", "orders").stdout


def test_what_is_bound_already_or_not_bound_is_told(invoke: Invoke, orders: shmq.Exchange) -> None:
    again = ("orders", "-q", "jobs", "-k", "orders.#")

    assert "is already bound in this way" in invoke("exchange", "bind", *again).stdout
    assert "is unbound from" in invoke("exchange", "unbind", *again).stdout
    assert "is not bound in this way" in invoke("exchange", "unbind", *again).stdout


def test_deleting_asks_first(invoke: Invoke, orders: shmq.Exchange, broker: shmq.Broker) -> None:
    refused = invoke("exchange", "delete", "orders")
    assert refused.exit_code == Code.USAGE
    assert "--yes" in refused.stderr

    assert invoke("exchange", "delete", "orders", "--yes").exit_code == Code.OK
    assert broker.list_exchanges() == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("exchange", "bind", "orders"), Code.USAGE),
        (("exchange", "bind", "orders", "-q", "jobs", "--to", "orders"), Code.USAGE),
        (("exchange", "bind", "orders", "-q", "jobs", "-k", "a*"), Code.USAGE),
        (("exchange", "bind", "orders", "-q", "jobs", "--header", "=1"), Code.USAGE),
        (("exchange", "bind", "orders", "-q", "nowhere"), Code.NO_QUEUE),
        (("exchange", "bind", "nowhere", "-q", "jobs"), Code.NO_QUEUE),
        (("exchange", "create", "orders"), Code.EXISTS),
        (("exchange", "create", ""), Code.USAGE),
        (("publish", "nowhere", "-m", "x"), Code.NO_QUEUE),
        (("publish", "orders", "-m", "x", "--file", "y"), Code.USAGE),
        (("publish", "orders", "--dedupe-id", "y"), Code.USAGE),
        (("publish", "orders", "-m", "{", "--codec", "json"), Code.REFUSED),
    ],
)
def test_what_cannot_be_is_one_line(
    invoke: Invoke, orders: shmq.Exchange, arguments: tuple[str, ...], code: Code
) -> None:
    ran = invoke(*arguments)

    assert ran.exit_code == code
    assert len(ran.stderr.splitlines()) == 1


def test_a_flag_that_resembles_none_is_refused_with_those_that_exist(invoke: Invoke) -> None:
    ran = invoke("exchange", "create", "x", "--zzz", "topic")

    assert ran.exit_code == Code.USAGE
    assert "No such option '--zzz'.: its flags are --kind, --" in ran.stderr
    ran = invoke("exchange", "create", "x", "--type", "topic")
    assert "No such option '--type'.: did you mean --kind?" in ran.stderr


def test_a_target_is_named_by_its_position_and_its_kind_found(
    invoke: Invoke, broker: shmq.Broker
) -> None:
    broker.create_queue("both")
    broker.create_stream("both", 1, allow_same_name=True).close()
    broker.create_stream("records", 1).close()
    broker.create_exchange("x", "fanout").close()

    assert invoke("exchange", "bind", "x", "records").exit_code == Code.OK
    asked = invoke("exchange", "bind", "x", "both")
    assert asked.exit_code == Code.USAGE
    assert "a queue and a stream: say which with -q, --stream or --to" in asked.stderr
    assert invoke("exchange", "bind", "x", "-q", "both").exit_code == Code.OK
    twice = invoke("exchange", "bind", "x", "both", "-q", "both")
    assert (twice.exit_code, "name one target" in twice.stderr) == (Code.USAGE, True)
    with broker.exchange("x") as found:
        bound = sorted((each.kind, each.target) for each in found.bindings())
    assert bound == [("queue", "both"), ("stream", "records")]
