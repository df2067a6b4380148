"""SIGKILL of a process: what it held comes back at once, to calls and to sleepers."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.processes import (
    HOUR,
    LARGE,
    Child,
    Start,
    asleep,
    attached,
    drain,
    hold,
    is_empty,
    is_sound,
)
from tests.support.waiting import PATIENCE, eventually


def tight(broker: Broker) -> Queue:
    """A queue ``q`` with room for a single message."""
    return broker.create_queue("q", capacity=1, visibility_timeout=HOUR)


# ---- to a waiter that is asleep already ----

WAITS: dict[str, Callable[[Queue], Any]] = {
    "get": lambda queue: queue.get(timeout=PATIENCE),
    "get_many": lambda queue: queue.get_many(5, timeout=PATIENCE)[0],
    "consume": lambda queue: next(queue.consume(timeout=PATIENCE)),
}


@pytest.mark.parametrize("how", WAITS)
def test_a_dead_holders_lease_comes_back_to_a_waiter_that_is_asleep(
    namespace: str, queue: Queue, start: Start, how: str
) -> None:
    def wait(pipe: Connection) -> tuple[bytes, int]:
        with WAITS[how](queue) as message:
            return message.body, message.delivery_count

    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()
    waiter = start(wait)
    asleep(queue, getters=1)

    holder.kill()

    assert waiter.ends() == (b"1", 2)
    is_empty(queue)


def hold_lease(queue: Queue) -> object:
    queue.put(b"1")
    return queue.get()


def hold_loan(queue: Queue) -> object:
    return queue.loan(LARGE)


def hold_view(queue: Queue) -> object:
    with queue.loan(LARGE) as writable:
        writable[:] = bytes(LARGE)
    with queue.get() as message:
        return message.view


#: What takes the space of a message from the queue, without being one that can be leased.
HOLDS = [hold_loan, hold_view]


@pytest.mark.parametrize("holds", HOLDS)
def test_a_dead_holders_space_comes_back_to_a_put_that_is_asleep(
    broker: Broker, start: Start, holds: Callable[[Queue], object]
) -> None:
    queue = tight(broker)
    holder = start(keep, queue, holds)
    holder.hear()
    waiter = start(lambda pipe: queue.put(b"2", timeout=PATIENCE).sequence)
    asleep(queue, putters=1)

    holder.kill()

    waiter.ends()
    assert drain(queue) == [b"2"]
    is_empty(queue)


def keep(pipe: Connection, queue: Queue, holds: Callable[[Queue], object]) -> None:
    held = holds(queue)
    pipe.send("holds it")
    pipe.recv()
    del held


# ---- to calls ----

ASKS: dict[str, Callable[[Broker, Queue], int]] = {
    "get_nowait": lambda broker, queue: queue.get_nowait().sequence,
    "get_many": lambda broker, queue: queue.get_many(5, block=False)[0].sequence,
    "consume": lambda broker, queue: next(queue.consume(block=False)).sequence,
    "peek": lambda broker, queue: queue.peek()[0].sequence,
    "qsize": lambda broker, queue: queue.qsize(),
    "stats": lambda broker, queue: queue.stats().depth,
    "list_queues": lambda broker, queue: broker.list_queues()[0].depth,
    "purge": lambda broker, queue: queue.purge(),
}


@pytest.mark.parametrize("how", ASKS)
def test_a_dead_holders_lease_is_back_for_the_next_get(
    namespace: str, broker: Broker, queue: Queue, start: Start, how: str
) -> None:
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()

    holder.kill()

    assert ASKS[how](broker, queue) == 1
    is_sound(queue)


def test_a_dead_holders_lease_is_back_though_the_queue_is_never_empty(
    namespace: str, queue: Queue, start: Start
) -> None:
    queue.put_many([b"held", b"1", b"2"])
    holder = start(hold, namespace)
    holder.hear()
    holder.kill()

    def served() -> bool:
        queue.put(b"more")
        with queue.get_nowait() as message:
            return bool(message.body == b"held")

    eventually(served, "the message is served again")


@pytest.mark.parametrize("holds", [hold_lease, *HOLDS])
def test_a_dead_holders_space_is_back_for_the_next_put(
    broker: Broker, start: Start, holds: Callable[[Queue], object]
) -> None:
    queue = tight(broker)
    holder = start(keep, queue, holds)
    holder.hear()

    holder.kill()

    if holds is hold_lease:
        with queue.get_nowait() as message:
            assert message.delivery_count == 2
    queue.put_nowait(b"2")
    assert drain(queue) == [b"2"]
    is_empty(queue)


@pytest.mark.parametrize("holds", HOLDS)
def test_what_a_dead_process_wrote_or_read_in_place_is_no_message(
    queue: Queue, start: Start, holds: Callable[[Queue], object]
) -> None:
    holder = start(keep, queue, holds)
    holder.hear()

    holder.kill()

    is_empty(queue)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_ends_a_process_ends_its_leases(
    namespace: str, queue: Queue, start: Start, number: signal.Signals
) -> None:
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()

    holder.signal(number)
    assert holder.reap() == -number

    assert queue.get_nowait().delivery_count == 2


def test_a_zombie_holds_nothing(namespace: str, queue: Queue, start: Start) -> None:
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()

    holder.signal(signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)

    assert queue.get_nowait().delivery_count == 2


def test_a_process_that_becomes_another_program_holds_nothing(
    namespace: str, queue: Queue, start: Start
) -> None:
    def work(pipe: Connection, ready: int, end: int) -> None:
        message = queue.get_nowait()
        code = f"import os; os.write({ready}, b'1'); os.read({end}, 1)"
        os.execv(sys.executable, [sys.executable, "-c", code, str(message.sequence)])

    heard, ready = os.pipe()
    end, tell = os.pipe()
    os.set_inheritable(ready, True)
    os.set_inheritable(end, True)
    queue.put(b"1")
    child = start(work, ready, end)
    assert os.read(heard, 1) == b"1"

    assert queue.get_nowait().delivery_count == 2

    os.close(tell)
    os.close(end)
    assert child.reap() == 0
    for descriptor in (heard, ready):
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["fork", "program"])
def test_the_children_of_a_dead_process_do_not_hold_its_leases(
    queue: Queue, start: Start, kind: str
) -> None:
    def work(pipe: Connection) -> None:
        queue.get_nowait()
        if kind == "program":
            with subprocess.Popen(["sleep", "1000"]) as child:
                pipe.send(child.pid)
                pipe.recv()
        pid = os.fork()
        if pid:
            pipe.send(pid)
        pipe.recv()

    queue.put(b"1")
    holder = start(work)
    heir = holder.hear()
    try:
        holder.kill()
        assert queue.get_nowait().delivery_count == 2
        os.kill(heir, 0)
    finally:
        os.kill(heir, signal.SIGKILL)


def test_a_stopped_process_keeps_its_leases(queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> str:
        message = queue.get_nowait()
        pipe.send("leased")
        pipe.recv()
        message.ack()
        return "acknowledged"

    queue.put(b"1")
    holder = start(work)
    holder.hear()

    holder.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    assert queue.get_many(1, block=False) == []
    holder.signal(signal.SIGCONT)
    holder.tell()

    assert holder.ends() == "acknowledged"
    is_empty(queue)


# ---- what counts as a delivery ----


def test_only_what_the_application_was_handed_counts_as_a_delivery(
    queue: Queue, start: Start
) -> None:
    def work(pipe: Connection) -> None:
        consumer = queue.consume(prefetch=10)
        handed = [next(consumer) for _ in range(3)]
        pipe.send(len(handed))
        pipe.recv()

    queue.put_many([bytes([number]) for number in range(10)])
    child = start(work)
    child.hear()
    assert queue.stats().in_flight == 10

    child.kill()

    again = queue.get_many(10)
    assert [message.body for message in again] == [bytes([n]) for n in range(10)]
    assert [message.delivery_count for message in again] == [2] * 3 + [1] * 7


@pytest.mark.parametrize("steps", [1, 3, 4, 10])
def test_a_loop_over_bodies_dies_with_one_in_hand_and_what_came_before_is_acknowledged(
    queue: Queue, start: Start, steps: int
) -> None:
    def work(pipe: Connection) -> None:
        bodies = queue.bodies(prefetch=4)
        for _ in range(steps):
            next(bodies)
        pipe.send(steps)
        pipe.recv()

    queue.put_many([bytes([number]) for number in range(20)])
    child = start(work)
    child.hear()

    child.kill()
    eventually(lambda: queue.stats().in_flight == 0, "its leases are back")

    again = queue.get_many(20)
    assert [message.body for message in again] == [bytes([n]) for n in range(steps - 1, 20)]
    assert [message.delivery_count for message in again] == [2] + [1] * (20 - steps)
    assert queue.stats().acked == steps - 1
    is_sound(queue)


def test_acknowledgements_that_were_not_flushed_are_delivered_again(
    queue: Queue, start: Start
) -> None:
    def work(pipe: Connection) -> None:
        consumer = queue.consume(prefetch=10)
        next(consumer).ack()
        consumer.flush()
        next(consumer).ack()
        pipe.send("acknowledged")
        pipe.recv()

    queue.put_many([b"1", b"2", b"3"])
    child = start(work)
    child.hear()

    child.kill()

    again = queue.get_many(10)
    assert [message.body for message in again] in ([b"2", b"3"], [b"3"])
    assert [message.delivery_count for message in again][-1] == 1


def test_a_message_that_kills_its_consumers_ends_as_a_dead_letter(
    namespace: str, broker: Broker, start: Start
) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR, max_deliveries=3)
    queue.put(b"poison", headers={"a": 1})

    for _ in range(3):
        holder = start(hold, namespace)
        holder.hear()
        holder.kill()

    assert queue.get_many(1, block=False) == []
    letter = broker.queue("q.dlq").get_nowait()
    assert letter.dead is not None
    assert (letter.body, letter.headers) == (b"poison", {"a": 1})
    assert (letter.dead.reason, letter.dead.deliveries) == ("max_deliveries", 3)
    is_empty(queue)


def test_messages_prefetched_by_the_dead_never_end_as_dead_letters(
    broker: Broker, start: Start
) -> None:
    def work(pipe: Connection) -> None:
        consumer = queue.consume(prefetch=2)
        pipe.send(next(consumer).sequence)
        pipe.recv()

    queue = broker.create_queue("q", visibility_timeout=HOUR, max_deliveries=1)
    queue.put(b"poison")
    queue.put(b"innocent")
    child = start(work)
    child.hear()

    child.kill()

    assert drain(queue) == [b"innocent"]
    assert drain(broker.queue("q.dlq")) == [b"poison"]


def test_what_comes_back_takes_its_old_place_in_the_order(
    namespace: str, queue: Queue, start: Start
) -> None:
    queue.put_many([b"1", b"2", b"3", b"4"])
    queue.put(b"0", priority=shmq.HIGH)
    holder = start(hold, namespace, 3)
    holder.hear()
    third = queue.get_nowait()

    holder.kill()

    assert third.body == b"3"
    assert queue.qsize() == 4
    assert drain(queue) == [b"0", b"1", b"2", b"4"]


def test_a_group_goes_on_with_the_message_that_its_dead_holder_had(
    namespace: str, queue: Queue, start: Start
) -> None:
    for body in (b"1", b"2"):
        queue.put(body, group="one")
    queue.put(b"3", group="two")
    holder = start(hold, namespace)
    holder.hear()
    other = queue.get_nowait()
    assert queue.get_many(1, block=False) == []

    holder.kill()

    assert other.body == b"3"
    assert drain(queue) == [b"1", b"2"]


def test_the_receipt_of_a_dead_process_settles_nothing_any_more(queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> None:
        pipe.send(queue.get_nowait().receipt)
        pipe.recv()

    queue.put(b"1")
    child = start(work)
    receipt = child.hear()
    child.kill()
    again = queue.get_nowait()

    assert queue.ack_many([receipt]) == [receipt]
    again.ack()


def test_many_that_die_at_once_return_all_that_they_held(
    namespace: str, queue: Queue, start: Start
) -> None:
    queue.put_many([bytes([number]) for number in range(40)])
    holders = [start(hold, namespace, 5) for _ in range(8)]
    for holder in holders:
        holder.hear()

    for holder in holders:
        holder.signal(signal.SIGKILL)
    for holder in holders:
        holder.reap()

    assert drain(queue) == [bytes([number]) for number in range(40)]
    assert attached(queue) == [os.getpid()]
    is_empty(queue)


# ---- dead sleepers ----


def test_dead_sleepers_are_not_counted(queue: Queue, broker: Broker, start: Start) -> None:
    full = broker.create_queue("full", capacity=1)
    full.put(b"1")
    getters = [start(lambda pipe: queue.get()) for _ in range(3)]
    putters = [start(lambda pipe: full.put(b"2", block=True)) for _ in range(3)]
    asleep(queue, getters=3)
    asleep(full, putters=3)

    for child in (*getters, *putters):
        child.kill()

    assert queue.stats().waiting_get == full.stats().waiting_put == 0
    is_sound(queue)
    is_sound(full)


def test_the_living_are_woken_though_sleepers_have_died(queue: Queue, start: Start) -> None:
    def wait(pipe: Connection) -> bytes:
        with queue.get(timeout=PATIENCE) as message:
            return bytes(message.body)

    dead = [start(wait) for _ in range(4)]
    asleep(queue, getters=4)
    for child in dead:
        child.kill()
    living = [start(wait) for _ in range(2)]
    asleep(queue, getters=2)

    queue.put_many([b"1", b"2"])

    assert {child.ends() for child in living} == {b"1", b"2"}
    asleep(queue)
    is_empty(queue)


def test_a_message_that_woke_a_sleeper_that_died_goes_to_another(
    queue: Queue, start: Start
) -> None:
    def wait(pipe: Connection) -> bytes:
        with queue.get(timeout=PATIENCE) as message:
            pipe.send("has it")
            return bytes(message.body)

    for number in range(20):
        first, second = start(wait), start(wait)
        asleep(queue, getters=2)
        first.signal(signal.SIGSTOP)
        queue.put(bytes([number]))
        first.kill()
        heard = second.hear()

        assert heard == "has it"
        assert second.ends() == bytes([number])
        asleep(queue)

    is_empty(queue)


# ---- anywhere in the middle ----


def churn(pipe: Connection, namespace: str) -> None:
    """Do everything with queue ``q``, in a tight loop, and report now and then."""
    queue = shmq.connect(namespace).queue("q")
    for number in itertools.count():
        with contextlib.suppress(shmq.Full):
            churn_once(queue, number)
        if number % 10 == 0:
            pipe.send(number)


def churn_once(queue: Queue, number: int) -> None:
    queue.put_many([b"1"] * 5, delay=0.0005 if number % 3 == 0 else None)
    queue.put(bytes(LARGE), group=f"group-{number % 7}", ttl=0.005)
    with queue.loan(LARGE, dedupe_id=str(number)) as view:
        view[:5] = b"hello"
    for message in queue.get_many(4, block=False):
        message.ack()
    for message in queue.get_many(2, block=False):
        if number % 2:
            message.reject()
        else:
            message.nack(delay=0)
    for message in queue.consume(prefetch=8, block=False):
        message.ack()
    queue.redrive(3)


def next_word(child: Child) -> None:
    """Return when the child reports: it goes on meanwhile."""
    for _ in range(3):
        child.hear()


@pytest.mark.prove
@pytest.mark.parametrize("others", [0, 2])
def test_killed_at_any_moment_a_process_leaves_a_sound_queue(
    namespace: str, broker: Broker, start: Start, others: int
) -> None:
    queue = broker.create_queue(
        "q", capacity=2000, visibility_timeout=HOUR, dedupe_window=0.5, retry_delay=0.0
    )
    dead_letter_queue = broker.queue("q.dlq")
    rest = [start(churn, namespace) for _ in range(others)]
    for _ in range(25):
        child = start(churn, namespace)
        next_word(child)
        child.kill()
        is_sound(queue)
        is_sound(dead_letter_queue)
    for child in rest:
        child.kill()

    queue.purge()
    eventually(lambda: not drain(queue) + drain(dead_letter_queue), "everything is taken out")
    assert attached(queue) == [os.getpid()]
    is_empty(queue)
    is_empty(dead_letter_queue)
    queue.put(b"1")
    assert drain(queue) == [b"1"]


def record(pipe: Connection, namespace: str, ledger: Path) -> None:
    """Put numbered messages and take any; write down what was confirmed.

    A kill may cut a line off, which is not to spoil the next one.
    """
    queue = shmq.connect(namespace).queue("q")
    with ledger.open("ab", buffering=0) as file:
        for number in range(1_000_000):
            body = f"{os.getpid()}:{number}".encode()
            file.write(b"\n+%s." % body)
            queue.put(body)
            file.write(b"\n=%s." % body)
            for message in queue.get_many(1, block=False):
                body = message.body
                file.write(b"\n-%s." % body)
                message.ack()
                file.write(b"\n!%s." % body)
            if number % 50 == 0:
                pipe.send(number)


def lines(ledger: Path, mark: bytes) -> list[bytes]:
    """The bodies written down under a mark, in lines that are whole."""
    text = ledger.read_bytes().split(b"\n")
    return [line[1:-1] for line in text if line.startswith(mark) and line.endswith(b".")]


def test_nothing_confirmed_is_lost_and_nothing_acknowledged_returns_despite_deaths(
    namespace: str, queue: Queue, start: Start, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    for _ in range(10):
        pair = [start(record, namespace, ledger), start(record, namespace, ledger)]
        next_word(pair[0])
        for child in pair:
            child.kill()
        is_sound(queue)

    left = drain(queue)

    begun, put = set(lines(ledger, b"+")), set(lines(ledger, b"="))
    taken, acked = set(lines(ledger, b"-")), lines(ledger, b"!")
    assert put <= taken | set(left), "a confirmed message was lost"
    assert set(left) | taken <= begun, "a message came that was never put"
    assert not set(acked) & set(left), "an acknowledged message came back"
    assert len(acked) == len(set(acked)), "a message was acknowledged twice"
    assert len(left) == len(set(left)), "a message was there twice"
    is_empty(queue)


def test_a_holder_may_die_while_its_queue_is_deleted(
    namespace: str, broker: Broker, queue: Queue, start: Start
) -> None:
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()
    broker.delete_queue("q")

    holder.kill()

    new = broker.create_queue("q", visibility_timeout=HOUR)
    with pytest.raises(shmq.Empty):
        new.get_nowait()
    eventually(lambda: attached(new) == [os.getpid()], "only this process is attached")
    is_empty(new)
