"""Exchanges: which queues get a message, and what becomes of one that no queue gets.

Other levels: unit/routing/test_book.py, conformance/models/test_exchanges.py,
system/cli/test_exchange.py, system/wire/test_exchanges.py.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Callable
from typing import Any, Unpack

import pytest

import shmq
from shmq import Binding, Broker, Exchange, ExchangeSummary, Published
from shmq.api.keywords import QueueKeywords
from tests.support.waiting import PATIENCE

from .conftest import Connect
from .tools import SOON, drain, in_thread, outcome


@pytest.fixture
def queues(broker: Broker) -> Callable[..., None]:
    """Makes queues of these names."""

    def make(*names: str, **options: Unpack[QueueKeywords]) -> None:
        options.setdefault("dead_letter", None)
        for name in names:
            broker.create_queue(name, **options)

    return make


def held(broker: Broker, *names: str) -> list[list[object]]:
    """What is in the queues, taken out."""
    return [drain(broker.queue(name)) for name in names]


# --- kinds -----------------------------------------------------------------------------


def test_a_direct_exchange_leads_to_the_queues_bound_with_the_key(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("red", "both")
    exchange = broker.create_exchange("colours")
    exchange.bind("red", "red")
    for key in ("red", "blue"):
        exchange.bind("both", key)

    told = [exchange.publish(key, key) for key in ("red", "blue")]

    assert told == [Published(2), Published(1)]
    assert held(broker, "red", "both") == [["red"], ["red", "blue"]]


def test_a_fanout_exchange_leads_to_every_queue_whatever_the_key(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("a", "b", "unbound")
    exchange = broker.create_exchange("news", "fanout")
    exchange.bind("a")
    exchange.bind("b")

    assert exchange.publish({"n": 1}, "any.key").delivered == 2
    assert held(broker, "a", "b", "unbound") == [[{"n": 1}], [{"n": 1}], []]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders.created", ["orders.created"], ["orders", "orders.created.eu", ""]),
        ("*", ["orders", "#", "*"], ["", "orders.created"]),
        ("#", ["", "orders", "a.b.c.d"], []),
        ("orders.*", ["orders.created", "orders."], ["orders", "orders.a.b", "other.created"]),
        ("orders.#", ["orders", "orders.a", "orders.a.b"], ["", "other", "orders2"]),
        ("#.created", ["created", "orders.created", "a.b.created"], ["created.a", ""]),
        ("a.#.z", ["a.z", "a.b.z", "a.z.z", "a.b.c.z"], ["a", "z", "a.z.b"]),
        ("*.#.*", ["a.b", "a.b.c"], ["", "a"]),
        ("#.#", ["", "a", "a.b"], []),
        ("#.a.#.a.#", ["a.a", "b.a.c.a.d"], ["a", "a.b"]),
        ("", [""], ["a"]),
        ("a..b", ["a..b"], ["a.b"]),
        ("a.*.b", ["a..b", "a.x.b"], ["a.b"]),
    ],
)
def test_a_topic_exchange_leads_where_the_pattern_matches(
    broker: Broker,
    queues: Callable[..., None],
    pattern: str,
    matching: list[str],
    others: list[str],
) -> None:
    queues("q")
    exchange = broker.create_exchange("topics", "topic")
    exchange.bind("q", pattern)

    for key in matching:
        assert exchange.publish(key, key).delivered == 1, key
    for key in others:
        with pytest.raises(shmq.Unroutable):
            exchange.publish(key, key, mandatory=True)

    assert held(broker, "q") == [matching]


@pytest.mark.parametrize(
    ("wanted", "match", "headers", "leads"),
    [
        ({"a": 1, "b": 2}, "all", {"a": 1, "b": 2, "c": 3}, True),
        ({"a": 1, "b": 2}, "all", {"a": 1}, False),
        ({"a": 1, "b": 2}, "any", {"b": 2}, True),
        ({"a": 1, "b": 2}, "any", {"a": 2, "b": 1}, False),
        ({"a": None}, "all", {"a": [1, 2]}, True),
        ({"a": None}, "all", {"b": 1}, False),
        ({"a": 1}, "all", {"a": True}, False),
        ({"a": 1}, "all", {"a": 1.0}, True),
        ({"a": "1"}, "all", {"a": 1}, False),
        ({}, "all", {}, True),
    ],
)
def test_a_headers_exchange_leads_where_the_headers_are(
    broker: Broker,
    queues: Callable[..., None],
    wanted: dict[str, object],
    match: shmq.api.Match,
    headers: dict[str, object],
    leads: bool,
) -> None:
    queues("q")
    exchange = broker.create_exchange("h", "headers")
    exchange.bind("q", headers=wanted, match=match)

    if leads:
        assert exchange.publish(b"x", headers=headers).delivered == 1
    else:
        with pytest.raises(shmq.Unroutable):
            exchange.publish(b"x", headers=headers)


# --- copies ----------------------------------------------------------------------------


def test_a_queue_that_several_bindings_lead_to_gets_one_copy(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    exchange = broker.create_exchange("topics", "topic")
    for pattern in ("#", "a.*", "*.b", "a.b"):
        exchange.bind("q", pattern)

    assert exchange.publish(b"once", "a.b") == Published(1)
    assert held(broker, "q") == [[b"once"]]


def test_a_published_message_has_the_properties_of_a_put(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("a", "b")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("a")
    exchange.bind("b")

    exchange.publish(
        [1, "two"],
        codec="json",
        priority=2,
        headers={"h": 1},
        group="g",
        ttl=60,
        reply_to="answers",
        correlation="c",
    )

    for name in ("a", "b"):
        with broker.queue(name).get(timeout=PATIENCE) as message:
            assert message.body == [1, "two"]
            assert (message.codec, message.priority, message.group) == ("json", 2, "g")
            assert message.headers == {"h": 1}
            assert (message.reply_to, message.correlation) == ("answers", "c")


@pytest.mark.parametrize(
    ("priority", "levels"), [("low", [0, 0, 0]), ("normal", [0, 1, 8]), ("high", [0, 2, 15])]
)
def test_a_named_priority_is_that_level_of_each_queue(
    broker: Broker, queues: Callable[..., None], priority: Any, levels: list[int]
) -> None:
    exchange = broker.create_exchange("x", "fanout")
    for priorities in (1, 3, 16):
        queues(f"of{priorities}", priorities=priorities)
        exchange.bind(f"of{priorities}")

    exchange.publish("1", priority=priority, codec="json", headers={"h": 1})
    exchange.publish(b"2", priority=priority)

    for name, level in zip(("of1", "of3", "of16"), levels, strict=True):
        messages = broker.queue(name).peek()
        assert [message.priority for message in messages] == [level] * 2
        assert (messages[0].codec, messages[0].headers) == ("json", {"h": 1})


@pytest.mark.parametrize("priority", [-1, 16, 1 << 62])
def test_a_priority_out_of_range_is_refused_with_the_range_of_the_queue(
    broker: Broker, queues: Callable[..., None], priority: int
) -> None:
    queues("q", priorities=3)
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("q")

    with pytest.raises(shmq.InvalidOption, match=rf"priority={priority} .*: 0 to 2 in this queue"):
        exchange.publish(b"x", priority=priority)


@pytest.mark.parametrize("body", [b"", b"x" * 10_000, "text", {"a": [1, None]}, bytearray(b"b")])
def test_a_body_of_any_type_arrives_as_it_was(
    broker: Broker, queues: Callable[..., None], body: shmq.api.Body
) -> None:
    queues("q")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("q")

    exchange.publish(body)

    assert held(broker, "q") == [[body]]


def test_a_delayed_copy_is_delayed_in_every_queue(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("a", "b")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("a")
    exchange.bind("b")

    exchange.publish(b"later", delay=600)

    assert [broker.queue(name).stats().delayed for name in ("a", "b")] == [1, 1]


def test_a_queue_that_knows_the_id_takes_no_second_copy(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("knows", dedupe_window=60)
    queues("plain")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("knows")
    exchange.publish(b"1", dedupe_id="one")
    exchange.bind("plain")

    assert exchange.publish(b"1", dedupe_id="one") == Published(delivered=1, duplicates=1)
    assert held(broker, "knows", "plain") == [[b"1"], [b"1"]]


def test_many_are_published_in_order(broker: Broker, queues: Callable[..., None]) -> None:
    queues("a", "b")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("a")
    exchange.bind("b")

    assert exchange.publish_many(["1", b"2", {"n": 3}]) == Published(6)
    assert held(broker, "a", "b") == [["1", b"2", {"n": 3}]] * 2
    assert exchange.publish_many([]) == Published(0)


def test_more_than_goes_into_a_frame_is_published_in_order(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q", arena_bytes=64 << 20)
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("q")
    bodies = [bytes([n]) * (3 << 20) for n in range(8)]

    assert exchange.publish_many(bodies).delivered == 8
    assert held(broker, "q") == [bodies]


# --- exchanges behind exchanges ----------------------------------------------------------


def test_an_exchange_leads_on_to_exchanges_and_a_queue_gets_one_copy(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q", "r")
    first = broker.create_exchange("first", "topic")
    for name, kind in (("second", "direct"), ("third", "fanout")):
        broker.create_exchange(name, kind)  # type: ignore[arg-type]
        first.bind(name, "a.#", kind="exchange")
        broker.exchange(name).bind("q", "a.b" if kind == "direct" else "")
    broker.exchange("third").bind("r")

    assert first.publish(b"x", "a.b") == Published(2)
    assert held(broker, "q", "r") == [[b"x"], [b"x"]]


def test_exchanges_in_a_circle_deliver_once(broker: Broker, queues: Callable[..., None]) -> None:
    queues("q")
    names = ("one", "two", "three")
    for name in names:
        broker.create_exchange(name, "fanout").bind("q")
    for name, after in zip(names, (*names[1:], names[0]), strict=True):
        broker.exchange(name).bind(after, kind="exchange")
        broker.exchange(name).bind(name, kind="exchange")

    assert broker.exchange("two").publish(b"x") == Published(1)


# --- unrouted messages ---------------------------------------------------------------------


def test_what_leads_to_no_queue_is_unroutable(broker: Broker, queues: Callable[..., None]) -> None:
    queues("q")
    exchange = broker.create_exchange("x")
    exchange.bind("q", "known")

    with pytest.raises(shmq.Unroutable, match="'x'"):
        exchange.publish(b"lost", "unknown")
    assert held(broker, "q") == [[]]


def test_what_no_binding_takes_goes_to_the_alternate(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q", "rest")
    exchange = broker.create_exchange("x", "direct", "leftovers")
    exchange.bind("q", "known")
    with pytest.raises(shmq.Unroutable):  # it is not there yet
        exchange.publish(b"", "unknown")
    broker.create_exchange("leftovers", "fanout").bind("rest")

    assert exchange.publish(b"1", "unknown").delivered == 1
    assert exchange.publish(b"2", "known").delivered == 1
    assert held(broker, "q", "rest") == [[b"2"], [b"1"]]
    assert exchange.alternate == "leftovers"


def test_alternates_of_each_other_end(broker: Broker) -> None:
    broker.create_exchange("a", "direct", "b")
    broker.create_exchange("b", "direct", "a")

    with pytest.raises(shmq.Unroutable):
        broker.exchange("a").publish(b"x")


@pytest.mark.parametrize(
    ("kind", "mandatory", "raises"),
    [
        ("direct", None, True),
        ("headers", None, True),
        ("topic", None, False),
        ("fanout", None, False),
        ("direct", False, False),
        ("headers", False, False),
        ("topic", True, True),
        ("fanout", True, True),
    ],
)
def test_an_unrouted_message_raises_where_it_is_mandatory(
    broker: Broker, kind: shmq.api.ExchangeKind, mandatory: bool | None, raises: bool
) -> None:
    exchange = broker.create_exchange("x", kind)

    if raises:
        with pytest.raises(shmq.Unroutable, match="'x'"):
            exchange.publish(b"lost", mandatory=mandatory)
    else:
        assert exchange.publish(b"lost", mandatory=mandatory) == Published(0)


def test_an_alternate_is_tried_first_however_mandatory_a_message_is(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    first = broker.create_exchange("first", "direct", "second")
    broker.create_exchange("second", "topic", "first").bind("q", "known")

    assert first.publish(b"1", "known", mandatory=True) == Published(1)
    assert first.publish(b"2", "known", mandatory=False) == Published(1)
    assert first.publish(b"3", "unknown", mandatory=False) == Published(0)
    with pytest.raises(shmq.Unroutable):
        first.publish(b"4", "unknown")
    assert held(broker, "q") == [[b"1", b"2"]]


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_an_unrouted_message_is_counted_whether_or_not_it_raises(
    broker: Broker, kind: shmq.api.ExchangeKind
) -> None:
    exchange = broker.create_exchange("x", kind)
    with pytest.raises(shmq.Unroutable):
        exchange.publish(b"lost", mandatory=True)
    exchange.publish(b"lost", mandatory=False)

    assert exchange.stats() == shmq.ExchangeStats(published=2, unrouted=2)


def test_the_exchange_that_was_published_to_counts(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    first = broker.create_exchange("first", "direct", "second")
    second = broker.create_exchange("second", "topic", "first")
    second.bind("q", "known")

    first.publish(b"1", "known")
    first.publish(b"2", "unknown", mandatory=False)

    assert first.stats() == shmq.ExchangeStats(published=2, unrouted=1)
    assert second.stats() == shmq.ExchangeStats(published=0, unrouted=0)


def test_what_a_queue_refuses_is_counted_and_what_no_put_could_do_is_not(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q", capacity=1)
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("q")
    exchange.publish(b"1")
    with pytest.raises((shmq.PublishRefused, shmq.Full)):
        exchange.publish(b"2")
    with pytest.raises(shmq.InvalidOption):
        exchange.publish(b"3", priority=99)

    assert exchange.stats() == shmq.ExchangeStats(published=2, unrouted=0)


def test_every_message_of_a_batch_is_counted_once(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q", capacity=2)
    exchange = broker.create_exchange("x", "topic")
    exchange.bind("q", "known")

    assert exchange.publish_many([b"1", b"2"], "unknown") == Published(0)
    assert exchange.publish_many([], "unknown") == Published(0)
    with pytest.raises(shmq.Unroutable):
        exchange.publish_many([b"3"], "unknown", mandatory=True)
    with pytest.raises(shmq.PublishRefused):  # after several attempts
        exchange.publish_many([b"4", b"5", b"6"], "known", timeout=0.05)

    assert exchange.stats() == shmq.ExchangeStats(published=6, unrouted=3)
    (listed,) = broker.list_exchanges()
    assert (listed.published, listed.unrouted) == (6, 3)


@pytest.mark.parametrize("mandatory", [1, "yes", []])
def test_whether_a_message_is_mandatory_must_be_a_bool(broker: Broker, mandatory: Any) -> None:
    exchange = broker.create_exchange("x")
    with pytest.raises(TypeError, match="mandatory"):
        exchange.publish(b"x", mandatory=mandatory)


@pytest.mark.parametrize(
    ("confirm", "error"),
    [
        ("tape", shmq.InvalidOption),
        ("\udc80", shmq.InvalidOption),
        (1, TypeError),
        (1 << 80, TypeError),
        (b"disk", TypeError),
        (["disk"], TypeError),
    ],
    ids=["text", "surrogate", "int", "long", "bytes", "list"],
)
@pytest.mark.parametrize("is_bound", [False, True])
def test_a_confirm_must_be_one_of_its_values(
    broker: Broker,
    queues: Callable[..., None],
    is_bound: bool,
    confirm: Any,
    error: type[Exception],
) -> None:
    exchange = broker.create_exchange("x", "fanout")
    if is_bound:
        queues("q")
        exchange.bind("q")
    message = f"confirm={confirm!r} must be one of 'memory', 'disk'"

    with pytest.raises(error, match=re.escape(message)):
        exchange.publish(b"x", confirm=confirm)
    assert not exchange.stats().published


def test_an_exchange_that_is_deleted_and_created_again_counts_from_0(broker: Broker) -> None:
    for _ in range(2):
        exchange = broker.create_exchange("x", "fanout")
        assert exchange.stats() == shmq.ExchangeStats(published=0, unrouted=0)
        exchange.publish(b"x")
        assert exchange.stats() == shmq.ExchangeStats(published=1, unrouted=1)
        broker.delete_exchange("x")
    with pytest.raises(shmq.NoSuchExchange):
        exchange.stats()


# --- queues that refuse -------------------------------------------------------------------


def test_a_full_queue_is_named_and_the_others_have_their_copy(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("full", capacity=1)
    queues("a", "z")
    exchange = broker.create_exchange("x", "fanout")
    for name in ("a", "full", "z"):
        exchange.bind(name)
    exchange.publish(b"1")

    with pytest.raises(shmq.PublishRefused, match="'full'") as error:
        exchange.publish(b"2")

    assert list(error.value.refused) == ["full"]
    assert isinstance(error.value.refused["full"], shmq.Full)
    assert isinstance(error.value.__cause__, shmq.Full)
    assert (error.value.delivered, error.value.duplicates) == (2, 0)
    assert held(broker, "a", "full", "z") == [[b"1", b"2"], [b"1"], [b"1", b"2"]]


def test_a_publish_waits_for_room_and_holds_back_no_other(
    connect: Connect, broker: Broker, queues: Callable[..., None]
) -> None:
    queues("full", capacity=1, overflow="block")
    queues("z")
    exchange = broker.create_exchange("x", "fanout")
    for name in ("full", "z"):
        exchange.bind(name)
    exchange.publish(b"1")

    waiting = in_thread(connect().exchange("x").publish, b"2")

    with broker.queue("z") as queue:
        assert [queue.get(timeout=PATIENCE).body for _ in range(2)] == [b"1", b"2"]
    assert drain(broker.queue("full"))[0] == b"1"
    assert outcome(waiting) == Published(2)


def test_a_publish_that_waits_in_vain_says_so(broker: Broker, queues: Callable[..., None]) -> None:
    queues("full", capacity=1)
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("full")
    exchange.publish(b"1")

    with pytest.raises(shmq.PublishRefused):
        exchange.publish(b"2", timeout=SOON)
    with pytest.raises(shmq.PublishRefused):
        exchange.publish(b"2", block=False)


def test_of_many_a_full_queue_takes_the_first(
    connect: Connect, broker: Broker, queues: Callable[..., None]
) -> None:
    queues("full", capacity=2)
    queues("z")
    exchange = broker.create_exchange("x", "fanout")
    for name in ("full", "z"):
        exchange.bind(name)

    with pytest.raises(shmq.PublishRefused, match="2 of 3") as error:
        exchange.publish_many([b"1", b"2", b"3"])

    assert error.value.delivered == 5
    assert held(broker, "full", "z") == [[b"1", b"2"], [b"1", b"2", b"3"]]


def test_of_many_the_rest_follows_when_there_is_room(
    connect: Connect, broker: Broker, queues: Callable[..., None]
) -> None:
    queues("full", capacity=2)
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("full")

    waiting = in_thread(connect().exchange("x").publish_many, [b"1", b"2", b"3"], "", True)

    with broker.queue("full") as queue:
        got = []
        for _ in range(3):
            with queue.get(timeout=PATIENCE) as message:
                got.append(message.body)
    assert got == [b"1", b"2", b"3"]
    assert outcome(waiting) == Published(3)


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"priority": 9}, shmq.InvalidOption),
        ({"ttl": -1}, shmq.InvalidOption),
        ({"confirm": "disk"}, shmq.InvalidOption),
        ({"priority": ["high"]}, TypeError),
        ({"unknown": 1}, TypeError),
        ({"headers": 1}, TypeError),
    ],
)
def test_what_no_put_could_do_is_refused_and_no_queue_gets_it(
    broker: Broker, queues: Callable[..., None], properties: dict[str, Any], error: type[Exception]
) -> None:
    queues("a", priorities=16)
    queues("b", priorities=3)
    exchange = broker.create_exchange("x", "fanout")
    for name in ("a", "b"):
        exchange.bind(name)

    with pytest.raises(error):
        exchange.publish(b"x", **properties)

    assert held(broker, "a", "b") == [[], []]


def test_a_body_that_one_queue_can_never_hold_is_put_into_none(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("a")
    queues("small", max_message_bytes=10)
    exchange = broker.create_exchange("x", "fanout")
    for name in ("a", "small"):
        exchange.bind(name)

    with pytest.raises(shmq.MessageTooLarge, match="small"):
        exchange.publish(bytes(11))

    assert held(broker, "a", "small") == [[], []]


# --- bindings -----------------------------------------------------------------------------


def test_bindings_are_told_sorted_and_once(broker: Broker, queues: Callable[..., None]) -> None:
    queues("a", "b")
    exchange = broker.create_exchange("x", "topic")
    broker.create_exchange("y")

    made = [exchange.bind("b", "k"), exchange.bind("a", "#"), exchange.bind("b", "k")]
    exchange.bind("y", "z.*", kind="exchange")

    assert made == [True, True, False]
    assert exchange.bindings() == [
        Binding("y", "exchange", "z.*"),
        Binding("a", "queue", "#"),
        Binding("b", "queue", "k"),
    ]


def test_the_headers_of_a_binding_are_told(broker: Broker, queues: Callable[..., None]) -> None:
    queues("q")
    exchange = broker.create_exchange("x", "headers")
    exchange.bind("q", headers={"b": 1, "a": None}, match="any")

    assert exchange.bindings() == [Binding("q", "queue", "", {"a": None, "b": 1}, "any")]
    assert not exchange.unbind("q", headers={"b": 1, "a": None})
    assert exchange.unbind("q", headers={"a": None, "b": 1}, match="any")
    assert exchange.bindings() == []


def test_what_is_unbound_gets_nothing_more(broker: Broker, queues: Callable[..., None]) -> None:
    queues("q", "other")
    exchange = broker.create_exchange("x", "topic")
    for name in ("q", "other"):
        exchange.bind(name, "a.*")
    exchange.publish(b"1", "a.b")

    assert exchange.unbind("q", "a.*")
    assert not exchange.unbind("q", "a.*")

    assert exchange.publish(b"2", "a.b") == Published(1)
    assert held(broker, "q", "other") == [[b"1"], [b"1", b"2"]]


def test_another_client_sees_a_binding_with_its_next_publish(
    connect: Connect, broker: Broker, queues: Callable[..., None]
) -> None:
    queues("a", "b")
    exchange = broker.create_exchange("x", "topic")
    other = connect().exchange("x")
    exchange.bind("a", "k")
    assert other.publish(b"1", "k").delivered == 1

    exchange.bind("b", "#")
    assert other.publish(b"2", "k").delivered == 2
    exchange.unbind("a", "k")
    assert other.publish(b"3", "k").delivered == 1

    assert held(broker, "a", "b") == [[b"1", b"2"], [b"2", b"3"]]


def test_a_deleted_queue_is_bound_no_more_and_neither_is_a_new_one_of_its_name(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q", "other")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("q")
    exchange.bind("other")
    assert exchange.publish(b"1").delivered == 2

    broker.delete_queue("q")

    assert exchange.bindings() == [Binding("other")]
    assert exchange.publish(b"2").delivered == 1
    queues("q")
    assert exchange.publish(b"3").delivered == 1
    assert held(broker, "q") == [[]]


def test_what_is_not_there_cannot_be_bound(broker: Broker) -> None:
    exchange = broker.create_exchange("x")

    with pytest.raises(shmq.NoSuchQueue, match="nowhere"):
        exchange.bind("nowhere", "k")
    with pytest.raises(shmq.NoSuchExchange, match="nowhere"):
        exchange.bind("nowhere", "k", kind="exchange")


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("topic", {"key": "a.b*"}),
        ("topic", {"key": "#a"}),
        ("fanout", {"key": "k"}),
        ("headers", {"key": "k"}),
        ("direct", {"headers": {"a": 1}}),
        ("headers", {"match": "any"}),
        ("headers", {"headers": {"a": 1}, "match": "some"}),
        ("headers", {"headers": {"a": float("nan")}}),
        ("direct", {"key": "k" * 256}),
        ("direct", {"kind": "river"}),
        ("direct", {"target": "no name"}),
    ],
)
def test_a_binding_that_an_exchange_cannot_have_is_refused(
    broker: Broker,
    queues: Callable[..., None],
    kind: shmq.api.ExchangeKind,
    arguments: dict[str, object],
) -> None:
    queues("q")
    exchange = broker.create_exchange("x", kind)

    with pytest.raises((shmq.InvalidOption, shmq.InvalidName)):
        exchange.bind(**{"target": "q", **arguments})  # type: ignore[arg-type]
    assert exchange.bindings() == []


@pytest.mark.parametrize("headers", [{"a": [1]}, {1: 1}, "a=1"])
def test_headers_that_cannot_be_compared_are_refused(
    broker: Broker, queues: Callable[..., None], headers: object
) -> None:
    queues("q")
    exchange = broker.create_exchange("x", "headers")

    with pytest.raises(TypeError):
        exchange.bind("q", headers=headers)  # type: ignore[arg-type]


# --- exchanges themselves -------------------------------------------------------------------


def test_an_exchange_is_found_listed_and_deleted(connect: Connect, broker: Broker) -> None:
    made = broker.create_exchange("x", "topic", "y")
    broker.create_exchange("b")

    found = connect().exchange("x")

    assert (found.name, found.kind, found.alternate) == ("x", "topic", "y")
    listed = [
        dataclasses.replace(each, published=None, unrouted=None) for each in broker.list_exchanges()
    ]
    assert listed == [
        ExchangeSummary(name="b", kind="direct", alternate=None, bindings=0),
        ExchangeSummary(name="x", kind="topic", alternate="y", bindings=0),
    ]
    broker.delete_exchange("x")
    assert [each.name for each in broker.list_exchanges()] == ["b"]
    for call in (lambda: made.publish(b""), made.bindings, lambda: broker.exchange("x")):
        with pytest.raises(shmq.NoSuchExchange, match="'x'"):
            call()
    with pytest.raises(shmq.NoSuchExchange):
        broker.delete_exchange("x")


@pytest.mark.parametrize("call", ["create_exchange", "exchange", "delete_exchange"])
def test_what_cannot_name_an_exchange_is_said_so(broker: Broker, call: str) -> None:
    with pytest.raises(shmq.InvalidName, match="invalid exchange name 'a/b': "):
        getattr(broker, call)("a/b")


def test_an_exchange_and_a_queue_may_have_one_name(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("orders")
    exchange = broker.create_exchange("orders")
    exchange.bind("orders", "k")

    assert exchange.publish(b"x", "k").delivered == 1
    broker.delete_exchange("orders")
    assert held(broker, "orders") == [[b"x"]]


def test_making_an_exchange_again_attaches_and_another_kind_is_refused(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    broker.create_exchange("x", "topic").bind("q", "k")

    assert broker.create_exchange("x", "topic").publish(b"", "k").delivered == 1
    assert broker.ensure_exchange("x").kind == "topic"
    assert broker.ensure_exchange("new", "fanout").kind == "fanout"
    for kind, alternate in (("direct", None), ("topic", "other")):
        with pytest.raises(shmq.ExchangeExists, match="topic"):
            broker.create_exchange("x", kind, alternate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("no name",), shmq.InvalidName),
        (("x" * 101,), shmq.InvalidName),
        (("x", "river"), shmq.InvalidOption),
        (("x", "direct", "x"), shmq.InvalidOption),
        (("x", "direct", "no name"), shmq.InvalidName),
        ((1,), TypeError),
    ],
)
def test_an_exchange_that_cannot_be_made_is_refused(
    broker: Broker, arguments: tuple[str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        broker.create_exchange(*arguments)
    assert broker.list_exchanges() == []


def test_deleting_an_exchange_undoes_the_bindings_to_it(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    first = broker.create_exchange("first", "fanout")
    broker.create_exchange("second", "fanout").bind("q")
    first.bind("second", kind="exchange")
    assert first.publish(b"1").delivered == 1

    broker.delete_exchange("second")

    assert first.bindings() == []
    broker.create_exchange("second", "fanout").bind("q")
    with pytest.raises(shmq.Unroutable):
        first.publish(b"2", mandatory=True)


def test_exchanges_outlive_the_clients_that_made_them(
    connect: Connect, broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    with connect() as maker:
        maker.create_exchange("x", "topic").bind("q", "a.#")

    assert connect().exchange("x").publish(b"", "a.b").delivered == 1


def test_an_exchange_of_a_closed_handle_or_broker_says_so(connect: Connect) -> None:
    client = connect()
    closed, left = client.create_exchange("x"), client.exchange("x")
    closed.close()
    closed.close()
    client.close()

    for exchange in (closed, left):
        for call in (exchange.bindings, lambda exchange=exchange: exchange.publish(b"")):
            with pytest.raises(shmq.ShmqError, match="closed"):
                call()


def test_a_pickled_exchange_is_the_same_one(broker: Broker, queues: Callable[..., None]) -> None:
    queues("q")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("q")

    with pickle.loads(pickle.dumps(exchange)) as copy:
        assert isinstance(copy, Exchange)
        assert copy.publish(b"x").delivered == 1


# --- streams behind exchanges -----------------------------------------------------------


def test_a_stream_gets_a_record_with_the_key_the_headers_and_the_codec(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    stream = broker.create_stream("s", 2)
    exchange = broker.create_exchange("x", "topic")
    exchange.bind("s", "orders.#", kind="stream")
    exchange.bind("q", "orders.eu.*")

    assert exchange.publish({"n": 1}, "orders.eu.a", headers={"h": 1}, priority=2) == Published(2)
    assert exchange.publish_many(["2", "3"], "orders.us") == Published(2)

    records = [record for each in stream.reader().poll() for record in each]
    assert [record.body for record in records if record.key == b"orders.us"] == ["2", "3"]
    first = next(record for record in records if record.key == b"orders.eu.a")
    assert (first.body, first.headers, first.codec) == ({"n": 1}, {"h": 1}, "msgpack")
    assert exchange.bindings()[1] == Binding("s", "stream", "orders.#")


def test_a_deleted_stream_is_bound_no_more(broker: Broker) -> None:
    broker.create_stream("s", 1)
    exchange = broker.create_exchange("x", "fanout")
    with pytest.raises(shmq.NoSuchStream, match="nowhere"):
        exchange.bind("nowhere", kind="stream")
    exchange.bind("s", kind="stream")
    assert exchange.publish(b"1").delivered == 1

    broker.delete_stream("s")

    assert exchange.bindings() == []
    with pytest.raises(shmq.Unroutable):
        exchange.publish(b"2", mandatory=True)


def test_a_stream_that_is_full_or_too_small_refuses_as_a_queue_does(
    broker: Broker, queues: Callable[..., None]
) -> None:
    queues("q")
    stream = broker.create_stream("s", 1, ring_bytes=64 << 10, overflow="block")
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("s", kind="stream")
    exchange.bind("q")
    with pytest.raises(shmq.MessageTooLarge, match="'s'"):
        exchange.publish(bytes(60 << 10))
    assert held(broker, "q") == [[]]

    with stream.subscribe(policy="block"), pytest.raises(shmq.PublishRefused) as error:
        while True:
            exchange.publish(bytes(1000), block=False)

    assert list(error.value.refused) == ["stream/s"]
    assert isinstance(error.value.refused["stream/s"], shmq.Full)
    assert error.value.delivered == 1


def test_an_exchange_of_another_kind_than_given_is_refused_where_that_is_asked_for(
    broker: Broker,
) -> None:
    broker.create_exchange("logs", "topic", alternate="rest")
    with pytest.raises(shmq.ExchangeExists, match="kind is 'topic', not 'fanout'") as told:
        broker.ensure_exchange("logs", "fanout", "others", if_different="refuse")
    assert told.value.differences == {"kind": ("fanout", "topic"), "alternate": ("others", "rest")}
    assert broker.ensure_exchange("logs", if_different="refuse").kind == "topic"
    assert broker.ensure_exchange("logs", "topic", if_different="refuse").alternate == "rest"
    assert broker.ensure_exchange("logs", "fanout", if_different="accept").kind == "topic"
    assert broker.ensure_exchange("plain", if_different="refuse").kind == "direct"
