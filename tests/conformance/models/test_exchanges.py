"""Exchanges and a naive model of them, driven through the same changes and publishes.

The model matches each binding by itself, with a regular expression or by comparing each
header, and follows exchanges by recursion.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.host.namespace.namespace import Namespace
from shmq.model.routing.book import Book
from tests.conformance.tools import drain
from tests.support.namespaces import own_namespace

QUEUES = ("q1", "q2", "q3", "q4")
NAMES = ("x1", "x2", "x3")
KINDS = ("direct", "topic", "fanout", "headers")

words = st.sampled_from(["a", "b", ""])
keys = st.lists(words, max_size=4).map(".".join)
patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=4).map(".".join)
values = st.sampled_from([1, True, "1", None])
headers = st.dictionaries(st.sampled_from("hij"), values, max_size=3)
targets = st.one_of(
    st.tuples(st.just("queue"), st.sampled_from(QUEUES)),
    st.tuples(st.just("exchange"), st.sampled_from(NAMES)),
)

SETTINGS = hypothesis.settings(
    max_examples=int(os.environ.get("SHMQ_MODEL_EXAMPLES", "25")),
    stateful_step_count=int(os.environ.get("SHMQ_MODEL_STEPS", "40")),
    suppress_health_check=list(hypothesis.HealthCheck),
)


def naive_topic(pattern: str, key: str) -> bool:
    """By trying every way to take words."""
    return _words_match(pattern.split(".") if pattern else [], key.split(".") if key else [])


def _words_match(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(_words_match(pattern[1:], key[n:]) for n in range(len(key) + 1))
    return bool(key) and pattern[0] in {"*", key[0]} and _words_match(pattern[1:], key[1:])


def naive_headers(wanted: dict[str, Any], match: str, found: dict[str, Any]) -> bool:
    def has(name: str) -> bool:
        if name not in found:
            return False
        a, b = wanted[name], found[name]
        return a is None or (type(a) is type(b) and a == b)

    return (all if match == "all" else any)(map(has, wanted))


class Exchanges(RuleBasedStateMachine):
    """The system under test, and what it should do."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.namespace = self.stack.enter_context(own_namespace())
        self.broker = self.stack.enter_context(LocalBroker(self.namespace))
        #: A reader that catches up now and then.
        self.reader = Book(Namespace.of(self.namespace))
        self.queues: set[str] = set()
        self.exchanges: dict[str, tuple[str, str | None]] = {}
        #: How many messages were published to each exchange, and how many were unrouted.
        self.counts: dict[str, tuple[int, int]] = {}
        self.bindings: set[tuple[Any, ...]] = set()

    def teardown(self) -> None:
        self.stack.close()

    # ---- changes ----

    @rule(name=st.sampled_from(QUEUES))
    def create_queue(self, name: str) -> None:
        self.broker.ensure_queue(name, dead_letter=None).close()
        self.queues.add(name)

    @rule(name=st.sampled_from(QUEUES))
    def delete_queue(self, name: str) -> None:
        with contextlib.suppress(shmq.NoSuchQueue):
            self.broker.delete_queue(name)
        self.queues.discard(name)
        self.bindings = {each for each in self.bindings if each[1] != ("queue", name)}

    @rule(
        name=st.sampled_from(NAMES),
        kind=st.sampled_from(KINDS),
        alternate=st.none() | st.sampled_from(NAMES),
    )
    def create_exchange(self, name: str, kind: Any, alternate: str | None) -> None:
        if alternate == name:
            return
        self.broker.ensure_exchange(name, kind, alternate, if_different="accept")
        self.exchanges.setdefault(name, (kind, alternate))
        self.counts.setdefault(name, (0, 0))

    @precondition(lambda self: self.exchanges)
    @rule(data=st.data())
    def delete_exchange(self, data: st.DataObject) -> None:
        if data.draw(st.integers(0, 3)):
            return
        name = data.draw(st.sampled_from(sorted(self.exchanges)))
        self.broker.delete_exchange(name)
        del self.exchanges[name], self.counts[name]
        self.bindings = {
            each for each in self.bindings if each[0] != name and each[1] != ("exchange", name)
        }

    @precondition(lambda self: self.exchanges)
    @rule(data=st.data(), end=targets)
    def bind(self, data: st.DataObject, end: tuple[Any, str]) -> None:
        name, binding, given = self._binding(data, end)
        there = end[1] in (self.queues if end[0] == "queue" else self.exchanges)
        exchange = self.broker.exchange(name)
        if not there:
            with pytest.raises((shmq.NoSuchQueue, shmq.NoSuchExchange)):
                exchange.bind(end[1], kind=end[0], **given)
            return
        assert exchange.bind(end[1], kind=end[0], **given) == (binding not in self.bindings)
        self.bindings.add(binding)

    @precondition(lambda self: self.exchanges)
    @rule(data=st.data(), end=targets)
    def unbind(self, data: st.DataObject, end: tuple[Any, str]) -> None:
        name, binding, given = self._binding(data, end)
        done = self.broker.exchange(name).unbind(end[1], kind=end[0], **given)
        assert done == (binding in self.bindings)
        self.bindings.discard(binding)

    def _binding(self, data: st.DataObject, target: tuple[str, str]) -> Any:
        """The exchange, the model's binding and the arguments."""
        name = data.draw(st.sampled_from(sorted(self.exchanges)))
        kind = self.exchanges[name][0]
        if kind == "headers":
            wanted = data.draw(headers)
            match = data.draw(st.sampled_from(["all", "any"])) if wanted else "all"
            rest = (tuple((k, repr(v)) for k, v in sorted(wanted.items())), match)
            return name, (name, target, *rest), {"headers": wanted, "match": match}
        key = ""
        if kind != "fanout":
            key = data.draw(patterns if kind == "topic" else keys)
        return name, (name, target, key, None), {"key": key}

    # ---- publishing ----

    @precondition(lambda self: self.exchanges)
    @rule(data=st.data(), key=keys, found=headers, mandatory=st.sampled_from([None, True, False]))
    def publish(
        self, data: st.DataObject, key: str, found: dict[str, Any], mandatory: bool | None
    ) -> None:
        name = data.draw(st.sampled_from(sorted(self.exchanges)))
        expected = self._reached(name, key, found, set())
        exchange = self.broker.exchange(name)
        raises = (
            self.exchanges[name][0] in {"direct", "headers"} if mandatory is None else mandatory
        )
        if not expected and raises:
            with pytest.raises(shmq.Unroutable):
                exchange.publish(b"x", key, headers=found, mandatory=mandatory)
        else:
            done = exchange.publish(b"x", key, headers=found, mandatory=mandatory)
            assert done.delivered == len(expected)
        published, unrouted = self.counts[name]
        self.counts[name] = published + 1, unrouted + (not expected)
        got = {each for each in self.queues if drain(self.broker.queue(each)) == [b"x"]}
        assert got == expected
        assert set(self.reader.route(name, key, found).queues) == expected

    def _reached(self, name: str, key: str, found: dict[str, Any], seen: set[str]) -> set[str]:
        if name in seen or name not in self.exchanges:
            return set()
        seen.add(name)
        kind, alternate = self.exchanges[name]
        matching = [
            each[1]
            for each in self.bindings
            if each[0] == name and self._matches(kind, each[2], each[3], key, found)
        ]
        if not matching:
            return set() if alternate is None else self._reached(alternate, key, found, seen)
        queues = {target for what, target in matching if what == "queue"}
        for what, target in matching:
            if what == "exchange":
                queues |= self._reached(target, key, found, seen)
        return queues

    def _matches(self, kind: str, wanted: Any, match: Any, key: str, found: Any) -> bool:
        if kind == "headers":
            plain = {name: VALUES[text] for name, text in wanted}
            return naive_headers(plain, match, found)
        if kind == "topic":
            return naive_topic(wanted, key)
        return kind == "fanout" or bool(wanted == key)

    @invariant()
    def the_list_is_that_of_the_model(self) -> None:
        told = {each.name: (each.kind, each.alternate) for each in self.broker.list_exchanges()}
        assert told == self.exchanges
        stats = {name: self.broker.exchange(name).stats() for name in self.exchanges}
        assert {name: (one.published, one.unrouted) for name, one in stats.items()} == self.counts
        assert sum(each.bindings for each in self.broker.list_exchanges()) == len(self.bindings)


VALUES = {repr(value): value for value in (1, True, "1", None)}

TestExchanges = Exchanges.TestCase
TestExchanges.settings = SETTINGS


@hypothesis.given(st.lists(patterns, max_size=8), keys)
def test_the_tree_matches_what_each_pattern_matches(some: list[str], key: str) -> None:
    from shmq.model.routing.topic import Topics

    topics = Topics()
    for pattern in some:
        topics.add(pattern, ("queue", pattern))

    assert {name for _, name in topics.match(key)} == {p for p in some if naive_topic(p, key)}
    for pattern in set(some):
        topics.remove(pattern, ("queue", pattern))
    assert topics.match(key) == set()
    assert not topics._root.words
