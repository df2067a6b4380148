"""What a process is doing when it is killed: one function for each operation.

A scenario is prepared by the survivor, acted out by the victim, and judged by what the
survivor then finds. ``bodies`` are those of the messages that exist when it begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable
from typing import Any

import shmq
from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.native import _core

SECOND = 1_000_000_000
LARGE = 20_000


@dataclasses.dataclass
class Stage:
    """What the survivor prepares and the victim finds."""

    broker: Any
    queue: Any
    held: list[Any] = dataclasses.field(default_factory=list)
    wakeups: Any = None
    watch: Any = None
    writer: Any = None
    now: int = 0

    def sync(self) -> None:
        """Let the persistence writer, if there is one, write all that there is.

        What has gone to another queue has arrived there.
        """
        while self.writer is not None and (found := self.writer.collect(4096, 0)):
            self.writer.publish(1, self.writer.position[1] + len(found.data))
            self.writer.arrived([slot for slot, *_ in self.writer.moved()])

    def later(self, seconds: float) -> None:
        """Let time pass, for this process."""
        _core.set_clock(self.now + int(seconds * SECOND))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """``act`` is what the victim does, ``prepare`` what it needs.

    ``kept``: bodies that must be found once, whatever happened. ``added``: once if the
    act was finished, at most once if not. ``removed``: not at all if it was finished, at
    most once if not. The victim's own leases are gone with it.
    """

    act: Callable[[Stage], None]
    prepare: Callable[[Stage], None] = lambda stage: None
    victim: Callable[[Stage], None] = lambda stage: None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    kept: tuple[bytes, ...] = ()
    added: tuple[bytes, ...] = ()
    removed: tuple[bytes, ...] = ()
    afterwards: Callable[[Stage], None] = lambda stage: None
    queue_may_go: bool = False


SCENARIOS: dict[str, Scenario] = {}


def scenario(**parts: Any) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Register the decorated function as the act of a scenario of its name."""

    def register(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SCENARIOS[act.__name__] = Scenario(act=act, **parts)
        return act

    return register


def three(stage: Stage) -> None:
    for body in (b"a", b"b", b"c"):
        stage.queue.put(body)


def three_in_a_group(stage: Stage) -> None:
    for body in (b"a", b"b", b"c"):
        stage.queue.put(body, group="g")


def take_one(stage: Stage) -> None:
    stage.held = [stage.queue.get(block=False)]


def take_all(stage: Stage) -> None:
    stage.held = stage.queue.get_many(10, block=False)


ABC = (b"a", b"b", b"c")

# ---- put ----


@scenario(added=(b"new",))
def put_into_an_empty_queue(stage: Stage) -> None:
    stage.queue.put(b"new")


@scenario(prepare=three, kept=ABC, added=(b"new",))
def put(stage: Stage) -> None:
    stage.queue.put(b"new", headers={"a": 1}, priority=2)


@scenario(prepare=three_in_a_group, kept=ABC, added=(b"new",))
def put_grouped(stage: Stage) -> None:
    stage.queue.put(b"new", group="g", priority=2)


@scenario(added=(b"new",))
def put_into_a_new_group(stage: Stage) -> None:
    stage.queue.put(b"new", group="h")


@scenario(prepare=three, kept=ABC, added=(b"new",))
def put_delayed(stage: Stage) -> None:
    stage.queue.put(b"new", delay=5)


@scenario(prepare=three, kept=ABC, added=(b"new",))
def put_with_ttl(stage: Stage) -> None:
    stage.queue.put(b"new", ttl=100_000)


@scenario(prepare=three, kept=ABC, added=(b"n" * LARGE,))
def put_large(stage: Stage) -> None:
    stage.queue.put(b"n" * LARGE)


@scenario(prepare=three, kept=ABC, added=(b"1", b"2", b"3"))
def put_many(stage: Stage) -> None:
    stage.queue.put_many([b"1", b"2", b"3"])


# ---- put, without the lock of the gets ----

#: What one put of a size makes ready for the next ones, and a few more.
BEYOND_THE_SPARE = 40


def with_free_slots(stage: Stage) -> None:
    """Three messages, and free slots of their size where the puts find them."""
    stage.queue.put_many([b"0"] * BEYOND_THE_SPARE)
    with stage.queue.get_batch(BEYOND_THE_SPARE):
        pass
    three(stage)


@scenario(prepare=with_free_slots, kept=ABC, added=(b"new",))
def put_quickly(stage: Stage) -> None:
    stage.queue.put(b"new")


@scenario(prepare=with_free_slots, kept=ABC, added=(b"new",))
def put_quickly_with_headers_and_ttl(stage: Stage) -> None:
    stage.queue.put(b"new", headers={"a": 1}, ttl=100_000)


MANY = tuple(b"%d" % n for n in range(5))


@scenario(prepare=with_free_slots, kept=ABC, added=MANY)
def put_many_quickly(stage: Stage) -> None:
    stage.queue.put_many(list(MANY))


@scenario(prepare=with_free_slots, kept=ABC, added=(b"l" * 1000, b"new"))
def put_quickly_between_sizes(stage: Stage) -> None:
    stage.queue.put(b"l" * 1000)
    stage.queue.put(b"new")


@scenario(prepare=with_free_slots, removed=ABC, added=(b"new",))
def put_quickly_and_take_all(stage: Stage) -> None:
    stage.queue.put(b"new")
    with stage.queue.get_batch(3):
        pass


@scenario(
    options={"capacity": 200, "overflow": "drop-oldest"},
    prepare=with_free_slots,
    kept=ABC,
    added=MANY,
)
def put_many_quickly_where_the_oldest_may_go(stage: Stage) -> None:
    stage.queue.put_many(list(MANY))


# ---- packed ----

PACKED_RECORDS = (b"one", b"", b"three")


@scenario(prepare=three, kept=ABC, added=PACKED_RECORDS)
def put_packed(stage: Stage) -> None:
    stage.queue.put_packed(b"".join(PACKED_RECORDS), [len(record) for record in PACKED_RECORDS])


@scenario(prepare=with_free_slots, kept=ABC, added=(b"on", b"tw"))
def put_packed_quickly(stage: Stage) -> None:
    stage.queue.put_packed(b"ontw", 2)


@scenario(prepare=three, kept=ABC, added=(b"n" * LARGE, b"m" * LARGE))
def put_packed_large(stage: Stage) -> None:
    stage.queue.put_packed(b"n" * LARGE + b"m" * LARGE, LARGE)


def put_again(stage: Stage) -> None:
    stage.queue.put(b"new", dedupe_id="one")
    if not stage.queue.put(b"new", dedupe_id="one").duplicate:
        raise AssertionError("the second put of an id was not a duplicate")


@scenario(options={"dedupe_window": 1e6}, afterwards=put_again, added=(b"new",))
def put_deduped(stage: Stage) -> None:
    stage.queue.put(b"new", dedupe_id="one")


@scenario(
    options={"dedupe_window": 1e6},
    prepare=lambda stage: [stage.queue.put(b"%d" % n, dedupe_id=f"id {n}") for n in range(64)],
    afterwards=put_again,
    kept=tuple(b"%d" % n for n in range(64)),
    added=(b"new",),
)
def put_deduped_when_the_ring_grows(stage: Stage) -> None:
    stage.queue.put(b"new", dedupe_id="one")


@scenario(
    options={"capacity": 3, "overflow": "drop-oldest"},
    prepare=three,
    kept=(b"b", b"c"),
    removed=(b"a",),
    added=(b"new",),
)
def put_that_drops_the_oldest(stage: Stage) -> None:
    stage.queue.put(b"new")


@scenario(prepare=three, kept=ABC, added=(b"l" * LARGE,))
def loan_and_commit(stage: Stage) -> None:
    with stage.queue.loan(LARGE) as view:
        view[:] = b"l" * LARGE


@scenario(prepare=three, kept=ABC)
def loan_and_drop(stage: Stage) -> None:
    stage.queue.loan(LARGE).drop()


# ---- get ----


@scenario(prepare=three, kept=ABC)
def get(stage: Stage) -> None:
    stage.queue.get(block=False)


@scenario(prepare=three_in_a_group, kept=ABC)
def get_grouped(stage: Stage) -> None:
    stage.queue.get(block=False)


@scenario(prepare=three, kept=ABC)
def get_many(stage: Stage) -> None:
    stage.queue.get_many(3, block=False)


@scenario(prepare=three, kept=ABC)
def get_batch(stage: Stage) -> None:
    stage.queue.get_batch(2, block=False)


def three_packed(stage: Stage) -> None:
    stage.queue.put_packed(b"ab", 1)
    stage.queue.put(b"c")


# ---- runs, and leases in a name ----

SIX = (b"a", b"b", b"c", b"d", b"e", b"f")


def six_in_groups(stage: Stage) -> None:
    """Three groups, and messages without one between them."""
    for body, group in zip(SIX, ("g", "h", None, "g", "g", None), strict=True):
        stage.queue.put(body, group=group, priority=1 if body != b"e" else 2)


@scenario(prepare=six_in_groups, kept=SIX)
def lease_a_run(stage: Stage) -> None:
    stage.queue.bulk().lease_run(5)


@scenario(prepare=six_in_groups, kept=SIX)
def return_a_run(stage: Stage) -> None:
    bulk = stage.queue.bulk()
    bulk.return_run(bulk.lease_run(5).receipts)


@scenario(prepare=six_in_groups, kept=(b"f",), removed=(b"a", b"b", b"c", b"d", b"e"))
def ack_a_run(stage: Stage) -> None:
    bulk = stage.queue.bulk()
    bulk.ack_run(bulk.lease_run(5).receipts)


def return_what_is_in_the_name(stage: Stage) -> None:
    """Epoch 2, which was being leased, comes back as a whole, at once."""
    stage.queue.bulk().take_over("query", settled=1)
    if stage.queue.stats().in_flight:
        raise AssertionError("something is leased, though all has been returned")


@scenario(prepare=six_in_groups, kept=SIX, afterwards=return_what_is_in_the_name)
def lease_a_run_in_a_name(stage: Stage) -> None:
    claim = stage.queue.bulk().take_over("query").claim
    stage.queue.bulk().lease_run(5, claim=claim, epoch=2)


def five_in_the_name(stage: Stage) -> None:
    six_in_groups(stage)
    claim = stage.queue.bulk().take_over("query").claim
    stage.held = [stage.queue.bulk().lease_run(5, claim=claim, epoch=1)]


def five_in_the_name_have_run_out(stage: Stage) -> None:
    five_in_the_name(stage)
    stage.later(700)
    stage.queue.tend()


def find_the_five(stage: Stage) -> None:
    """A death in a takeover changes nothing for the next one."""
    (run,) = stage.held
    found = stage.queue.bulk().take_over("query", epoch=1).run
    if sorted(memoryview(found.sequences).cast("Q")) != sorted(memoryview(run.sequences).cast("Q")):
        raise AssertionError("the run has other messages than before")
    if stage.queue.bulk().ack_run(run.receipts) != len(run):
        raise AssertionError("a receipt of an older claim is good")
    stage.queue.bulk().return_run(found.receipts)


@scenario(prepare=five_in_the_name, kept=SIX, afterwards=find_the_five)
def take_a_run_over(stage: Stage) -> None:
    stage.queue.bulk().take_over("query", epoch=1)


@scenario(prepare=five_in_the_name_have_run_out, kept=SIX, afterwards=find_the_five)
def take_a_run_over_that_has_run_out(stage: Stage) -> None:
    stage.queue.bulk().take_over("query", epoch=1)


def settle_the_five(stage: Stage) -> None:
    stage.queue.bulk().take_over("query", settled=1)


@scenario(
    prepare=five_in_the_name,
    kept=(b"f",),
    removed=(b"a", b"b", b"c", b"d", b"e"),
    afterwards=settle_the_five,
)
def settle_an_epoch(stage: Stage) -> None:
    settle_the_five(stage)


@scenario(
    prepare=five_in_the_name_have_run_out,
    kept=(b"f",),
    removed=(b"a", b"b", b"c", b"d", b"e"),
    afterwards=settle_the_five,
)
def settle_an_epoch_that_has_run_out(stage: Stage) -> None:
    settle_the_five(stage)


@scenario(
    prepare=five_in_the_name, kept=SIX, afterwards=lambda stage: stage.queue.bulk().release("query")
)
def release_a_name(stage: Stage) -> None:
    stage.queue.bulk().release("query")


@scenario(prepare=three_packed, kept=ABC)
def get_packed(stage: Stage) -> None:
    stage.queue.get_packed(block=False)


@scenario(prepare=lambda stage: stage.queue.put(b"a" * LARGE), kept=(b"a" * LARGE,))
def get_large_and_view(stage: Stage) -> None:
    message = stage.queue.get(block=False)
    bytes(message.view)


@scenario(prepare=lambda stage: stage.queue.put(b"a", ttl=100_000), kept=(b"a",))
def get_with_ttl(stage: Stage) -> None:
    stage.queue.get(block=False)


@scenario(prepare=three, removed=ABC)
def consume_and_ack(stage: Stage) -> None:
    for message in stage.queue.consume(prefetch=2, block=False):
        message.ack()


@scenario(prepare=three_in_a_group, kept=(b"b", b"c"), removed=(b"a",))
def ack_in_a_consumer_that_never_flushes(stage: Stage) -> None:
    consumer = stage.queue.consume(prefetch=3, block=False)
    stage.held = [consumer]
    next(consumer).ack()


@scenario(prepare=three, kept=(b"b", b"c"), removed=(b"a",))
def consume_and_stop(stage: Stage) -> None:
    consumer = stage.queue.consume(prefetch=3, block=False)
    next(consumer).ack()
    consumer.close()


@scenario(prepare=three, removed=ABC)
def loop_over_bodies(stage: Stage) -> None:
    for _ in stage.queue.bodies(prefetch=2, block=False):
        continue


@scenario(prepare=three, kept=(b"b", b"c"), removed=(b"a",))
def leave_a_loop_over_bodies_by_an_exception(stage: Stage) -> None:
    bodies = stage.queue.bodies(prefetch=3, block=False)
    next(bodies)
    next(bodies)
    bodies.__exit__(ValueError, ValueError(), None)


@scenario()
def get_that_waits_in_vain(stage: Stage) -> None:
    try:
        stage.queue.get(timeout=0.002)
    except shmq.Empty:
        return


@scenario(options={"capacity": 3}, prepare=three, kept=ABC)
def put_that_waits_in_vain(stage: Stage) -> None:
    try:
        stage.queue.put(b"new", timeout=0.002)
    except shmq.Full:
        return


# ---- wakeups ----


def watch(stage: Stage, event: int) -> None:
    """The survivor's own wakeup is armed for the event."""
    stage.wakeups = WakeupPool.of(stage.queue.namespace)
    stage.watch = _core.Watch(stage.queue, event, stage.wakeups.take())
    stage.watch.arm()


def has_output_if_there_is_a_message(stage: Stage) -> None:
    """A death between any two steps of a waker is seen by a look, without the lock.

    The dead one's own end rings for room, too, so there may be none.
    """
    is_get = stage.watch.event == _core.EVENT_NOT_EMPTY
    there = stage.queue.qsize() > 0 if is_get else not stage.queue.full()
    stirs = stage.watch.stirs()
    if stirs < there or (is_get and stirs > there):
        raise AssertionError(f"something is there: {there}; the watch stirs: {stirs}")
    stage.watch.disarm()
    stage.wakeups.give_back(stage.watch.wakeup)


@scenario(
    prepare=lambda stage: watch(stage, _core.EVENT_NOT_EMPTY),
    afterwards=has_output_if_there_is_a_message,
    added=(b"new",),
)
def put_that_rings(stage: Stage) -> None:
    stage.queue.put(b"new")


def free_slots_and_watched(stage: Stage) -> None:
    with_free_slots(stage)
    with stage.queue.get_batch(3):
        watch(stage, _core.EVENT_NOT_EMPTY)


@scenario(
    prepare=free_slots_and_watched, afterwards=has_output_if_there_is_a_message, added=(b"new",)
)
def put_quickly_that_rings(stage: Stage) -> None:
    stage.queue.put(b"new")


def full_and_watched(stage: Stage) -> None:
    three(stage)
    watch(stage, _core.EVENT_NOT_FULL)


@scenario(
    options={"capacity": 3},
    prepare=full_and_watched,
    victim=take_one,
    afterwards=has_output_if_there_is_a_message,
    kept=(b"b", b"c"),
    removed=(b"a",),
)
def ack_that_rings(stage: Stage) -> None:
    stage.held[0].ack()


@scenario(prepare=three, kept=ABC)
def arm_and_disarm(stage: Stage) -> None:
    wakeup = WakeupPool.of(stage.queue.namespace).take()
    for event in (_core.EVENT_NOT_EMPTY, _core.EVENT_NOT_FULL):
        watch = _core.Watch(stage.queue, event, wakeup)
        watch.arm()
        watch.disarm()


@scenario(prepare=three, kept=ABC, victim=lambda stage: watch(stage, _core.EVENT_NOT_FULL))
def close_with_an_armed_wakeup(stage: Stage) -> None:
    stage.queue.close()


@scenario()
def wait_for_two_in_vain(stage: Stage) -> None:
    other = stage.broker.queue("q.dlq")
    if shmq.wait([stage.queue, other], timeout=0.002):
        raise AssertionError("there was no message")


@scenario()
def aget_that_waits_in_vain(stage: Stage) -> None:
    try:
        asyncio.run(stage.queue.aget(timeout=0.002))
    except shmq.Empty:
        return


@scenario(prepare=three, kept=ABC)
def peek(stage: Stage) -> None:
    stage.queue.peek(2)


# ---- settle ----


@scenario(prepare=three, victim=take_one, kept=(b"b", b"c"), removed=(b"a",))
def ack(stage: Stage) -> None:
    stage.held[0].ack()


@scenario(prepare=three_in_a_group, victim=take_one, kept=(b"b", b"c"), removed=(b"a",))
def ack_and_hand_the_group_over(stage: Stage) -> None:
    stage.held[0].ack()


@scenario(prepare=three, victim=take_all, removed=ABC)
def ack_many(stage: Stage) -> None:
    stage.queue.ack_many(stage.held)


def take_batch(stage: Stage) -> None:
    stage.held = [stage.queue.get_batch(10, block=False)]


def take_packed(stage: Stage) -> None:
    stage.held = [stage.queue.get_packed(block=False)]


@scenario(prepare=three, victim=take_batch, removed=ABC)
def ack_batch(stage: Stage) -> None:
    stage.held[0].ack()


@scenario(prepare=three, victim=take_batch, kept=ABC)
def nack_batch(stage: Stage) -> None:
    stage.held[0].nack(delay=0)


@scenario(prepare=three_packed, victim=take_packed, removed=ABC)
def ack_packed(stage: Stage) -> None:
    stage.held[0].ack()


@scenario(prepare=three_packed, victim=take_packed, kept=ABC)
def nack_packed(stage: Stage) -> None:
    stage.held[0].nack(delay=5)


def take_large_with_view(stage: Stage) -> None:
    message = stage.queue.get(block=False)
    stage.held = [message, message.view]


@scenario(
    prepare=lambda stage: stage.queue.put(b"a" * LARGE),
    victim=take_large_with_view,
    removed=(b"a" * LARGE,),
)
def ack_while_viewed_then_let_go(stage: Stage) -> None:
    stage.held[0].ack()
    stage.held.clear()


@scenario(prepare=three, victim=take_one, kept=ABC)
def nack_at_once(stage: Stage) -> None:
    stage.held[0].nack(delay=0)


def counts_one_failure_or_none(stage: Stage) -> None:
    """The count of failures is off by one at most, and no name is half of one."""
    assert stage.queue.stats().errors in ({}, {"other": 1}, {"OSError": 1}), stage.queue.stats()


@scenario(
    prepare=three_in_a_group, victim=take_one, kept=ABC, afterwards=counts_one_failure_or_none
)
def nack_with_an_error(stage: Stage) -> None:
    stage.held[0].nack(0, error=OSError("e" * 300))


def three_of_which_one_has_failed(stage: Stage) -> None:
    three(stage)
    stage.queue.get(block=False).nack(0, error="first")


def counts_one_failure_or_two(stage: Stage) -> None:
    counted = stage.queue.stats().errors
    assert counted in ({"text": 1}, {"text": 1, "other": 1}, {"text": 2}), counted


@scenario(
    prepare=three_of_which_one_has_failed,
    victim=take_one,
    kept=ABC,
    afterwards=counts_one_failure_or_two,
)
def nack_with_another_error(stage: Stage) -> None:
    stage.held[0].nack(0, error="e" * 300)


@scenario(prepare=three_of_which_one_has_failed, victim=take_one, kept=ABC)
def reject_with_an_error(stage: Stage) -> None:
    stage.held[0].reject("e" * 300)


@scenario(
    prepare=three_of_which_one_has_failed, victim=take_one, kept=(b"b", b"c"), removed=(b"a",)
)
def ack_one_that_has_failed(stage: Stage) -> None:
    stage.held[0].ack()


@scenario(prepare=three_in_a_group, victim=take_one, kept=ABC)
def nack_delayed_in_a_group(stage: Stage) -> None:
    stage.held[0].nack(delay=5)


@scenario(prepare=three, victim=take_one, options={"max_deliveries": 1}, kept=ABC)
def nack_at_the_limit(stage: Stage) -> None:
    stage.held[0].nack()


@scenario(prepare=three_in_a_group, victim=take_one, kept=ABC)
def reject(stage: Stage) -> None:
    stage.held[0].reject()


@scenario(
    prepare=three,
    victim=take_one,
    options={"dead_letter": None},
    kept=(b"b", b"c"),
    removed=(b"a",),
)
def reject_without_dead_letters(stage: Stage) -> None:
    stage.held[0].reject()


@scenario(prepare=three, victim=take_all, kept=ABC)
def extend(stage: Stage) -> None:
    stage.held[0].extend(500)
    stage.held[1].extend(1)


@scenario(prepare=three, victim=take_one, kept=ABC)
def extend_to_the_end(stage: Stage) -> None:
    stage.held[0].extend(0)


# ---- time ----


@scenario(prepare=three_in_a_group, victim=take_one, kept=ABC)
def expiry(stage: Stage) -> None:
    stage.later(31)
    stage.queue.qsize()


@scenario(prepare=three, victim=take_all, options={"max_deliveries": 1}, kept=ABC)
def expiry_into_the_dead_letters(stage: Stage) -> None:
    stage.later(31)
    stage.queue.qsize()


def three_delayed(stage: Stage) -> None:
    for body in ABC:
        stage.queue.put(body, delay=5, group="g")


@scenario(prepare=three_delayed, kept=ABC)
def promotion(stage: Stage) -> None:
    stage.later(6)
    stage.queue.qsize()


def two_with_ttl(stage: Stage) -> None:
    stage.queue.put(b"a", ttl=5, priority=0)
    stage.queue.put(b"b", ttl=5, delay=50)


@scenario(prepare=two_with_ttl, kept=(b"a", b"b"))
def ttl_into_the_dead_letters(stage: Stage) -> None:
    stage.later(6)
    stage.queue.qsize()


# ---- the whole queue ----


def mixed(stage: Stage) -> None:
    three_in_a_group(stage)
    stage.queue.put(b"d" * LARGE, priority=2)
    stage.queue.put(b"e", delay=50)


@scenario(prepare=mixed, removed=(*ABC, b"d" * LARGE, b"e"))
def purge(stage: Stage) -> None:
    stage.queue.purge()


def three_rejected(stage: Stage) -> None:
    for body in ABC:
        stage.queue.put(body, group="g")
    for _ in ABC:
        stage.queue.get(block=False).reject()


@scenario(prepare=three_rejected, kept=ABC)
def redrive(stage: Stage) -> None:
    stage.queue.redrive()


@scenario(prepare=three, kept=ABC)
def disown_a_taken_message(stage: Stage) -> None:
    taken = stage.queue.transfer.take(0, 1)
    stage.queue.transfer.disown(taken[0])
    stage.queue.tend()


@scenario(prepare=three, kept=ABC)
def attach(stage: Stage) -> None:
    stage.held = [stage.broker.queue("q")]


@scenario(prepare=three, victim=take_all, kept=ABC)
def detach_with_leases(stage: Stage) -> None:
    stage.queue.close()


@scenario()
def create(stage: Stage) -> None:
    stage.broker.create_queue("other", capacity=10)


@scenario(prepare=three, removed=ABC, queue_may_go=True)
def delete(stage: Stage) -> None:
    stage.broker.delete_queue("q")


OLD, NEW = (5, 300.0, 3600.0), (9, 7.0, 60.0)


def altered_whole(stage: Stage) -> None:
    """All options are old or all are new, and can be altered again."""
    found = stage.queue.options
    if (found.max_deliveries, found.retry_delay_max, found.ttl) not in (OLD, NEW):
        raise AssertionError(f"the options are half altered: {found}")
    if stage.broker.alter_queue("q", visibility_timeout=20).visibility_timeout != 20:
        raise AssertionError("the options cannot be altered any more")


@scenario(options={"ttl": 3600}, prepare=three, kept=ABC, afterwards=altered_whole)
def alter(stage: Stage) -> None:
    stage.broker.alter_queue("q", max_deliveries=9, retry_delay_max=7, ttl=60)


def resized_whole(stage: Stage) -> None:
    """Both sizes are old or both are new; the queue takes what it should, and can grow again."""
    found = stage.queue.options
    if (found.capacity, found.arena_bytes) not in {(200, 1 << 20), (400, 2 << 20), (50, 1 << 16)}:
        raise AssertionError(f"the sizes are half altered: {found}")
    stage.broker.alter_queue("q", capacity=800, arena_bytes=4 << 20)
    with stage.broker.queue("q") as other:
        for number in range(410):
            other.put(b"x" * 4000, group=f"x{number}")
        taken = other.get_many(500, block=False)
        if len(taken) != 413:
            raise AssertionError(f"{len(taken)} messages are there, not 413")
        for message in taken:
            message.ack() if message.body[:1] == b"x" else message.nack(0)
    stage.sync()
    stage.queue.check()


SIZES = {"arena_bytes": 1 << 20, "max_message_bytes": 1 << 14}


@scenario(options=SIZES, prepare=three, kept=ABC, afterwards=resized_whole)
def grow(stage: Stage) -> None:
    stage.broker.alter_queue("q", capacity=400, arena_bytes=2 << 20)


def three_in_groups(stage: Stage) -> None:
    for body in ABC:
        stage.queue.put(body, group=body.decode())


@scenario(options=SIZES, prepare=three_in_groups, kept=ABC, afterwards=resized_whole)
def grow_with_groups(stage: Stage) -> None:
    stage.broker.alter_queue("q", capacity=400, arena_bytes=2 << 20)


def three_where_many_were(stage: Stage) -> None:
    stage.queue.put_many(ABC)
    stage.queue.put_many([b"x" * 1000] * 100)
    taken = stage.queue.get_many(103, block=False)
    stage.queue.ack_many(taken[3:])
    for message in taken[:3]:
        message.nack(0)
    stage.sync()


@scenario(options=SIZES, prepare=three_where_many_were, kept=ABC, afterwards=resized_whole)
def shrink(stage: Stage) -> None:
    stage.broker.alter_queue("q", capacity=50, arena_bytes=1 << 16)


# ---- the survivor's own work, cut short ----


@scenario(
    prepare=mixed,
    kept=(*ABC, b"d" * LARGE, b"e"),
    victim=lambda stage: die_in_another_process(stage, holding_the_lock=True),
)
def recovery(stage: Stage) -> None:
    stage.queue.qsize()


@scenario(
    prepare=mixed,
    kept=(*ABC, b"d" * LARGE, b"e"),
    victim=lambda stage: die_in_another_process(stage, holding_the_lock=False),
)
def reclaiming_what_a_dead_process_held(stage: Stage) -> None:
    stage.queue.qsize()


def die_in_another_process(stage: Stage, *, holding_the_lock: bool) -> None:
    """Fork a process that dies with leases, and with the lock if that is wanted."""
    child = os.fork()
    if child == 0:
        stage.held = stage.queue.get_many(2, block=False)
        if holding_the_lock:
            _core.crash_at(12)
            stage.queue.put(b"never", group="g")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def drain(queue: Any) -> list[bytes]:
    """Take and acknowledge all visible messages of a queue."""
    found: list[bytes] = []
    while True:
        try:
            message = queue.get(block=False)
        except shmq.Empty:
            return found
        found += message.body if message.codec == "packed" else [bytes(message.body)]
        message.ack()


# ---- with a journal ----


def journaled(prepare: Callable[[Stage], None]) -> dict[str, Any]:
    """Of a queue with a journal, in which is what was prepared."""

    def prepared(stage: Stage) -> None:
        prepare(stage)
        stage.writer = _core.Follower(stage.broker.queue("q"))
        stage.sync()

    return {"prepare": prepared, "options": {"durability": "journal"}}


@scenario(**journaled(three), kept=ABC, added=(b"new",))
def put_with_a_journal(stage: Stage) -> None:
    stage.queue.put(b"new")


@scenario(**journaled(with_free_slots), kept=ABC, added=(b"new",))
def put_quickly_with_a_journal(stage: Stage) -> None:
    stage.queue.put(b"new")


@scenario(**journaled(three), kept=(b"b", b"c"), removed=(b"a",), victim=take_one)
def ack_what_is_in_the_journal(stage: Stage) -> None:
    stage.held[0].ack()


@scenario(**journaled(three), kept=ABC, victim=take_one)
def nack_what_is_in_the_journal(stage: Stage) -> None:
    stage.held[0].nack()


@scenario(**journaled(three), kept=ABC, victim=take_one)
def reject_what_is_in_the_journal(stage: Stage) -> None:
    stage.held[0].reject()


@scenario(**journaled(three), removed=ABC)
def purge_what_is_in_the_journal(stage: Stage) -> None:
    stage.queue.purge()


def be_the_writer(stage: Stage) -> None:
    stage.writer = _core.Follower(stage.queue)


def another_writer(stage: Stage) -> None:
    stage.writer = _core.Follower(stage.broker.queue("q"))
    stage.writer.withdraw()


def two_to_put_and_one_to_settle(stage: Stage) -> None:
    three(stage)
    stage.writer = _core.Follower(stage.broker.queue("q"))
    stage.sync()
    stage.queue.get().ack()
    stage.queue.put_many([b"d", b"e"])


@scenario(
    prepare=two_to_put_and_one_to_settle,
    options={"durability": "journal"},
    victim=be_the_writer,
    afterwards=another_writer,
    kept=(b"b", b"c", b"d", b"e"),
)
def write_a_journal(stage: Stage) -> None:
    stage.sync()


# ---- rows that are staged, and published ----

ROWS = (
    b"r1",
    (b"r2", {"group": "g", "headers": {"a": 1}}),
    (b"r3", {"group": "g", "priority": 2}),
    (b"r4", {"delay": 5}),
    (b"r5", {"ttl": 100_000, "dedupe_id": "five"}),
    b"r" * 70_000,
)
BODIES = (b"r1", b"r2", b"r3", b"r4", b"r5", b"r" * 70_000)


def rows_for(queue: shmq.Queue) -> tuple[Any, ...]:
    """The rows, of which one has a dedupe id if the queue has a window."""
    return ROWS if queue.options.dedupe_window else (*ROWS[:4], (b"r5", {"ttl": 100_000}), ROWS[5])


def rows_staged(stage: Stage) -> None:
    rows = rows_for(stage.queue)
    stage.queue.staged_publisher("p").stage(0, "never", [b"lost"])
    stage.queue.staged_publisher("p").stage(0, "one", rows[:4])
    stage.queue.staged_publisher("p").stage(0, "two", rows[4:])


def rows_staged_behind_three(stage: Stage) -> None:
    three(stage)
    rows_staged(stage)


def publish_the_rows(stage: Stage) -> None:
    stage.queue.staged_publisher("p").commit_batch(0, ["one", "two"], timeout=10)


def publish_again(stage: Stage) -> None:
    """As a process that finds the publisher dead; then nothing is staged any more."""
    publish_the_rows(stage)
    stage.queue.staged_publisher("p").discard()


published: dict[str, Any] = {"prepare": rows_staged, "afterwards": publish_again, "kept": BODIES}


@scenario(
    prepare=three, kept=ABC, afterwards=lambda stage: stage.queue.staged_publisher("p").discard()
)
def stage_rows(stage: Stage) -> None:
    stage.queue.staged_publisher("p").stage(0, "one", rows_for(stage.queue))


@scenario(**published)
def publish_rows(stage: Stage) -> None:
    publish_the_rows(stage)


def an_id_is_known(stage: Stage) -> None:
    stage.queue.put(b"a", dedupe_id="five")
    rows_staged(stage)


@scenario(
    **{**published, "prepare": an_id_is_known, "kept": (b"a", *BODIES[:4], BODIES[5])},
    options={"dedupe_window": 10_000},
)
def publish_rows_of_which_one_is_known(stage: Stage) -> None:
    publish_the_rows(stage)


@scenario(**published, options={"dedupe_window": 10_000})
def publish_rows_with_ids(stage: Stage) -> None:
    publish_the_rows(stage)


def publish_unwritten(stage: Stage) -> None:
    """The writer is the test itself, and does not write meanwhile."""
    with contextlib.suppress(shmq.NotConfirmed):
        stage.queue.staged_publisher("p").commit_batch(0, ["one", "two"], timeout=0)


def publish_unwritten_again(stage: Stage) -> None:
    publish_unwritten(stage)
    stage.queue.staged_publisher("p").discard()


@scenario(
    **{**journaled(rows_staged_behind_three), "options": {"durability": "journal"}},
    afterwards=publish_unwritten_again,
    kept=(*ABC, *BODIES),
)
def publish_rows_with_a_journal(stage: Stage) -> None:
    publish_unwritten(stage)


def into_two_places(stage: Stage) -> None:
    """Publish into the queue, which holds two messages, as far as there is room."""
    with contextlib.suppress(shmq.Full):
        stage.queue.staged_publisher("p").commit_batch(0, ["one", "two"], timeout=0)


def make_room_and_publish(stage: Stage) -> None:
    """What is found goes to another queue meanwhile."""
    found = stage.broker.create_queue("found")
    while True:
        found.put_many(drain(stage.queue))
        try:
            stage.queue.staged_publisher("p").commit_batch(0, ["one", "two"], timeout=0)
        except shmq.Full:
            stage.later(LONG_ENOUGH)
            continue
        break
    stage.queue.staged_publisher("p").discard()
    found.close()


LONG_ENOUGH = 10


@scenario(
    prepare=rows_staged, afterwards=make_room_and_publish, kept=BODIES, options={"capacity": 2}
)
def publish_rows_into_a_full_queue(stage: Stage) -> None:
    into_two_places(stage)


def xyz_staged_behind_three(stage: Stage) -> None:
    three(stage)
    stage.queue.staged_publisher("p").stage(0, "one", [b"x", b"y", b"z"])


def publish_xyz_again(stage: Stage) -> None:
    stage.queue.staged_publisher("p").commit_batch(0, ["one"], timeout=10)
    stage.queue.staged_publisher("p").discard()


@scenario(
    prepare=xyz_staged_behind_three,
    afterwards=publish_xyz_again,
    kept=(b"x", b"y", b"z"),
    removed=ABC,
    options={"capacity": 3, "overflow": "drop-oldest"},
)
def publish_rows_that_drop_the_oldest(stage: Stage) -> None:
    stage.queue.staged_publisher("p").commit_batch(0, ["one"], timeout=10)


@scenario(
    prepare=rows_staged_behind_three,
    kept=ABC,
    afterwards=lambda stage: stage.queue.staged_publisher("p").discard(),
)
def discard_what_is_staged(stage: Stage) -> None:
    stage.queue.staged_publisher("p").discard()


@scenario(
    prepare=xyz_staged_behind_three,
    removed=ABC,
    afterwards=lambda stage: stage.queue.staged_publisher("p").discard(),
    queue_may_go=True,
)
def delete_with_what_is_staged(stage: Stage) -> None:
    stage.broker.delete_queue("q")


def die_while_publishing(stage: Stage) -> None:
    """Fork a process that dies half way through the rows."""
    child = os.fork()
    if child == 0:
        stage.queue.qsize()
        _core.crash_at(70)
        stage.queue.staged_publisher("p").commit_batch(0, ["one"])
        os._exit(1)
    os.waitpid(child, 0)


@scenario(
    prepare=xyz_staged_behind_three,
    afterwards=publish_xyz_again,
    kept=(*ABC, b"x", b"y", b"z"),
    victim=die_while_publishing,
)
def publish_rows_that_a_dead_publisher_left(stage: Stage) -> None:
    stage.queue.staged_publisher("p").commit_batch(0, ["one"], timeout=10)
