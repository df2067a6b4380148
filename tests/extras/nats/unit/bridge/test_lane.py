"""How a route is driven: what passes is tried again, what does not ends it, a drained one ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import shmq
from shmq.errors import (
    ConnectionLost,
    Full,
    InvalidOption,
    LeaseExpired,
    LockTimeout,
    MessageTooLarge,
    NoSuchQueue,
    NoSuchStream,
    QueueDeleted,
    ShmqError,
    StreamDeleted,
)
from shmq.extras.nats.bridge import backward, bridge, forward
from shmq.extras.nats.bridge.config import Backward, Bridge, Forward, check
from shmq.extras.nats.bridge.lane import Lane, drive
from shmq.extras.nats.bridge.progress import Progress, render_bridge
from tests.support.openmetrics import families


class Scripted(Lane):
    """A lane whose steps are given: whether it found something, or an exception."""

    def __init__(self, *steps: bool | Exception) -> None:
        super().__init__(Progress("forward", "here", "there"))
        self._steps = list(steps)
        self.opened = self.closed = 0
        self.careful: list[bool] = []

    def open(self) -> None:
        self.opened += 1

    def step(self, *, careful: bool, patience: float) -> bool:
        self.careful.append(careful)
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def is_drained(self) -> bool:
        return not self._steps

    def lag(self) -> tuple[int, float]:
        return len(self._steps), 0.0

    @property
    def handles(self) -> Sequence[Any]:
        return ()

    def close(self) -> None:
        super().close()
        self.closed += 1


def test_a_drained_lane_ends_when_nothing_is_left() -> None:
    lane = Scripted(True, False, True, False)
    drive(lane, threading.Event(), True)
    assert lane.careful == [False] * 4


def test_after_a_failure_only_a_few_are_tried() -> None:
    lane = Scripted(True, Full("full"), True, False)
    drive(lane, threading.Event(), True)
    assert lane.careful == [False, False, True, False]
    assert lane.opened == 1


def test_a_lock_that_is_not_to_be_had_passes() -> None:
    lane = Scripted(LockTimeout("held by a stopped process"), True, False)
    drive(lane, threading.Event(), True)
    assert lane.opened == 1


def test_leases_that_ended_before_their_messages_were_read_end_no_route(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = SimpleNamespace(identity=7, options=SimpleNamespace(priorities=1), close=lambda: None)
    monkeypatch.setattr(forward, "target_queue", lambda *_: target)
    read = forward.ForwardLane._iterate_messages
    orders = broker.create_queue("orders")
    orders.put("tea")

    def read_late(self: forward.ForwardLane, bulk: Any, run: Any) -> Any:
        bulk.return_run(run.receipts)
        orders.get(False).ack()  # by another consumer
        return read(self, bulk, run)

    monkeypatch.setattr(forward.ForwardLane, "_iterate_messages", read_late)
    lane = forward.ForwardLane(broker, lambda: None, Forward(queue="orders"))
    drive(lane, threading.Event(), True)
    assert lane.progress.read().sent == 0


def test_a_message_whose_lease_ended_before_it_is_refused_ends_no_route() -> None:
    class Message:
        sequence = 1

        def reject(self) -> None:
            raise LeaseExpired("it was delivered again")

    def refuse(*_: Any, **__: Any) -> None:
        raise MessageTooLarge("too large")

    lane: Any = backward.BackwardLane(None, lambda: None, Backward(queue="orders"))  # type: ignore[arg-type]
    lane._target = SimpleNamespace(put=refuse)
    lane._source = SimpleNamespace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backward, "_body_to_put", lambda _: b"")
        patch.setattr(backward, "_read_properties", lambda *_: {})
        lane._put([Message()])


@pytest.mark.parametrize("gone", [NoSuchQueue, NoSuchStream, QueueDeleted, StreamDeleted])
def test_what_was_deleted_is_opened_again(gone: type[ShmqError]) -> None:
    lane = Scripted(gone("gone"), False)
    drive(lane, threading.Event(), True)
    assert (lane.opened, lane.closed) == (2, 1)


def test_what_does_not_pass_names_the_route() -> None:
    with pytest.raises(InvalidOption, match="forward of 'here' to 'there': no window"):
        drive(Scripted(InvalidOption("no window")), threading.Event(), False)


def test_a_stopped_lane_ends_between_two_steps() -> None:
    stop = threading.Event()
    stop.set()
    lane = Scripted(True)
    drive(lane, stop, False)
    assert not lane.careful


def test_an_interrupted_bridge_does_not_wait_for_what_is_under_way(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(bridge, "drive", lambda *_: released.wait())
    monkeypatch.setattr(bridge, "_ENDING", None)  # without an end
    routes = (Forward(queue="orders"),)
    config = check(Bridge(url="nats://127.0.0.1:1", namespace=namespace, forward=routes))
    running = bridge.RunningBridge(config)
    with pytest.raises(KeyboardInterrupt), running:
        raise KeyboardInterrupt
    released.set()
    assert running.wait()


def test_an_outage_is_seen_in_the_numbers() -> None:
    lane = Scripted(ConnectionLost("away"), False)
    lane.progress.took(3, duplicates=1)
    lane.progress.lags(7, 2.5)
    drive(lane, threading.Event(), True)
    numbers = lane.progress.read()
    assert (numbers.connected, numbers.sent, numbers.duplicates) == (False, 3, 1)
    found = {
        one.name: one.value
        for family in families(render_bridge("n", [numbers]))
        for one in family.samples
    }
    assert found["shmq_bridge_up"] == 0
    assert found["shmq_bridge_lag_messages"] == 7
    assert found["shmq_bridge_lag_seconds"] == 2.5
    assert found["shmq_bridge_sent_total"] == 3
    assert found["shmq_bridge_duplicates_total"] == 1
    assert found["shmq_bridge_last_ack_timestamp_seconds"] == numbers.last_ack > 0
