"""The feed of event streams: what each subscriber is given, and who is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

import shmq
from shmq.extras.console.access import Caller
from shmq.extras.console.observer import History, ObserverThread
from shmq.extras.console.snapshot import (
    KEPT,
    MOST_PENDING,
    Feed,
    Subscriber,
    find_differences,
    merge_changes,
)
from shmq.host.diagnose.activity import Observation, QueueActivity
from shmq.server.config.tokens import Token, hash_of

ANYONE = Caller(None)


def observation(*names: str, identity: int = 1) -> Observation:
    queues = tuple(QueueActivity(name=name, identity=identity) for name in names)
    return Observation(namespace="n", at=1.0, seconds=0.0, queues=queues)


@pytest.fixture
def feed(broker: shmq.Broker) -> Feed:
    """A feed of an observer that has looked once, at nothing, and is moved on by the test."""
    observer = ObserverThread(broker, History())
    observer.start()
    observer.latest()
    observer.stop()
    return Feed(observer)


def follow(feed: Feed, caller: Caller = ANYONE, last: str | None = None) -> Subscriber:
    return feed.subscribe(caller, None, last, lambda: None)


def taken(subscriber: Subscriber) -> tuple[str, str, Any]:
    """The next event: its kind, its id and its data."""
    event = subscriber.take()
    assert event is not None
    kind, number, data = (line.partition(b": ")[2] for line in event.rstrip().split(b"\n"))
    return kind.decode(), number.decode(), json.loads(data)


def test_a_difference_has_the_changed_values_alone() -> None:
    before = {("queues", "a"): {"depth": 1, "put": 1}, ("queues", "b"): {"depth": 0}}
    after = {("queues", "a"): {"depth": 1, "put": 2}, ("queues", "c"): {"depth": 0}}
    assert find_differences(before, after) == {
        ("queues", "a"): {"put": 2},
        ("queues", "b"): None,
        ("queues", "c"): {"depth": 0},
    }


def test_differences_in_a_row_make_one() -> None:
    key = ("queues", "a")
    assert merge_changes([{key: {"x": 1}}, {key: {"y": 2}}]) == {key: {"x": 1, "y": 2}}
    assert merge_changes([{key: {"x": 1}}, {key: None}]) == {key: None}
    assert merge_changes([{key: None}, {key: {"x": 3}}]) == {key: {"x": 3}}


def test_a_queue_that_was_made_anew_is_sent_whole(feed: Feed) -> None:
    subscriber = follow(feed)
    assert taken(subscriber)[0] == "snapshot"
    feed.look(observation("a"))
    whole = taken(subscriber)[2]["queues"]["a"]
    feed.look(observation("a", identity=2))
    assert taken(subscriber)[2]["queues"]["a"] == {**whole, "identity": "2"}
    feed.look(observation("a", identity=2))
    assert "queues" not in taken(subscriber)[2]


def test_equal_rights_share_one_encoding(feed: Feed) -> None:
    one, two = follow(feed), follow(feed)
    assert one.take() is two.take()
    feed.look(observation("a"))
    assert one.take() is two.take()


def test_other_rights_see_other_names(feed: Feed) -> None:
    token = Token(name="t", hash=hash_of("t" * 40), consume=["a*"])
    limited = follow(feed, Caller(token))
    limited.take()
    feed.look(observation("a1", "b1"))
    assert set(taken(limited)[2]["queues"]) == {"a1"}


def test_a_reader_that_takes_nothing_is_dropped_and_keeps_nothing(feed: Feed) -> None:
    slow, quick = follow(feed), follow(feed)
    for number in range(MOST_PENDING + 3):
        assert quick.take() is not None
        feed.look(observation(f"q{number}"))
    assert slow.dropped
    assert slow.take() is None
    assert not quick.dropped


def test_what_was_missed_is_told_as_one_difference_while_it_is_known(feed: Feed) -> None:
    subscriber = follow(feed)
    last = taken(subscriber)[1]
    for number in range(3):
        feed.look(observation(*(f"q{n}" for n in range(number + 1))))
    kind, now, data = taken(follow(feed, last=last))
    assert (kind, set(data["queues"])) == ("changes", {"q0", "q1", "q2"})
    kind, _, data = taken(follow(feed, last=now))
    assert (kind, "queues" in data) == ("changes", False)
    for _ in range(KEPT):
        feed.look(observation("q0"))
    assert taken(follow(feed, last=last))[0] == "snapshot"


def test_a_feed_without_readers_forgets_what_it_knew(feed: Feed) -> None:
    subscriber = follow(feed)
    last = taken(subscriber)[1]
    feed.unsubscribe(subscriber)
    for _ in range(KEPT + 2):
        feed.look(observation("a"))
    assert taken(follow(feed, last=last))[0] == "snapshot"
