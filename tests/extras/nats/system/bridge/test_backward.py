"""From a queue of a cluster to a queue of this host."""

from __future__ import annotations

import pytest

import shmq
from shmq.extras.nats.bridge.backward import BackwardLane
from shmq.extras.nats.bridge.config import Backward
from tests.support.bridge import PATIENCE, Bridged, take_all

PRICES = Backward(queue="prices")


def test_a_message_has_here_what_it_had_there(bridged: Bridged) -> None:
    source = bridged.there.create_queue("prices", priorities=4)
    source.put({"n": 1}, priority=3, headers={"kind": "new"}, correlation="c", ttl=600)
    source.put(b"\x00", codec="of-my-own", group="g")
    (numbers,) = bridged.drain(PRICES)
    assert (numbers.sent, numbers.duplicates) == (2, 0)
    found = {one.codec: one for one in take_all(bridged.here.queue("prices"), 2)}
    first = found["msgpack"]
    assert (first.body, first.priority, first.correlation) == ({"n": 1}, 3, "c")
    assert first.headers == {"kind": "new"}
    assert first.properties["ttl"] == 600_000
    assert (found["of-my-own"].body, found["of-my-own"].group) == (b"\x00", "g")
    assert source.empty()


def test_what_was_put_before_a_crash_is_dropped_here(
    bridged: Bridged, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = bridged.there.create_queue("prices", visibility_timeout=1.0)
    source.put_many(range(10))
    lane = BackwardLane(bridged.here, lambda: bridged.there, PRICES)
    lane.open()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(lane.progress, "took", _interrupt)
        patched.setattr(type(lane._source), "ack_many", lambda *_: [])
        while True:  # a get may find nothing yet, or a part of it
            lane.step(careful=False, patience=PATIENCE)
    lane.close()
    before = bridged.here.queue("prices").qsize()
    assert before > 0
    (numbers,) = bridged.drain(PRICES)
    assert numbers.sent == 10
    assert numbers.duplicates >= before
    found = take_all(bridged.here.queue("prices"), 10)
    assert sorted(one.body for one in found) == list(range(10))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_full_queue_here_holds_up_what_is_there(bridged: Bridged) -> None:
    source = bridged.there.create_queue("prices", visibility_timeout=2.0, max_deliveries=None)
    target = bridged.here.create_queue("prices", capacity=5, dedupe_window=600)
    source.put_many(range(20))
    found = []
    with bridged.bridge(PRICES) as running:
        for _ in range(20):
            message = target.get(timeout=60)
            found.append(message.body)
            message.ack()
        assert running.wait(60)
    assert sorted(found) == list(range(20))


def test_a_queue_without_a_window_is_refused(bridged: Bridged) -> None:
    bridged.there.create_queue("prices")
    bridged.here.create_queue("prices")
    with (
        bridged.bridge(PRICES) as running,
        pytest.raises(shmq.InvalidOption, match="'prices' of this host has no dedupe_window"),
    ):
        running.wait(60)
