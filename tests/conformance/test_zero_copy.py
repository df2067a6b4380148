"""Zero copy: loans to write in place, views to read in place."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

import shmq
from shmq import Broker, Queue

from .conftest import Connect
from .tools import LATER, SOON, drain, in_thread, next_message, outcome, putter_asleep

SIZES = [0, 1, 100, 5000, 100_000]


def overwrite(queue: Queue, size: int) -> None:
    """Use every byte of the queue's arena that is free, with bodies of ``size`` bytes."""
    while queue.put_many([b"\xff" * size], block=False):
        pass
    drain(queue)


@pytest.fixture
def small(broker: Broker) -> Queue:
    """A queue whose arena is soon used up."""
    return broker.create_queue("small", arena_bytes=256 * 1024, max_message_bytes=128 * 1024)


@pytest.mark.parametrize("size", SIZES)
def test_a_view_is_the_body_in_place_and_read_only(queue: Queue, size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    queue.put(body)
    view = queue.get().view

    assert isinstance(view, memoryview)
    assert view.readonly
    assert (view.format, view.itemsize, view.nbytes) == ("B", 1, size)
    assert view == body


def test_a_view_is_read_only(queue: Queue) -> None:
    queue.put(b"constant")
    view = queue.get().view

    with pytest.raises(TypeError):
        view[0] = 0

    assert bytes(view) == b"constant"


def test_a_view_of_a_text_or_msgpack_body_shows_its_bytes(queue: Queue) -> None:
    queue.put("é")
    queue.put([1])

    assert bytes(queue.get().view) == "é".encode()
    assert bytes(queue.get().view) == b"\x91\x01"


@pytest.mark.parametrize("end", ["ack", "nack", "reject", "expiry"])
@pytest.mark.parametrize("size", [10, 20_000])
def test_a_view_outlives_its_lease_however_it_ends(small: Queue, end: str, size: int) -> None:
    small.put(b"\x01" * size)
    message = small.get()
    view = message.view
    ends: dict[str, Callable[[], None]] = {
        "ack": message.ack,
        "nack": lambda: message.nack(delay=0),
        "reject": message.reject,
        "expiry": lambda: message.extend(0),
    }
    ends[end]()
    drain(small)

    overwrite(small, size)

    assert view == b"\x01" * size


def test_a_view_outlives_its_message_object(small: Queue) -> None:
    small.put(b"\x01" * 20_000)
    view = small.get().view
    small.close()
    gc.collect()

    assert view == b"\x01" * 20_000


def test_a_view_outlives_the_close_of_its_client(connect: Connect) -> None:
    broker = connect()
    queue = broker.create_queue("jobs", arena_bytes=256 * 1024)
    queue.put(b"\x01" * 20_000)
    message = queue.get()
    view = message.view
    message.ack()

    broker.close()
    overwrite(connect().queue("jobs"), 20_000)

    assert view == b"\x01" * 20_000


def test_a_view_outlives_the_deletion_of_its_queue(broker: Broker) -> None:
    queue = broker.create_queue("jobs")
    queue.put(b"\x01" * 20_000)
    view = queue.get().view

    broker.delete_queue("jobs")
    overwrite(broker.create_queue("jobs", arena_bytes=256 * 1024), 20_000)

    assert view == b"\x01" * 20_000


def test_a_view_outlives_a_purge(small: Queue) -> None:
    small.put(b"\x01" * 20_000)
    message = small.get()
    view = message.view
    message.nack(delay=0)

    small.purge()
    overwrite(small, 20_000)

    assert view == b"\x01" * 20_000


def test_a_view_survives_the_message_being_delivered_to_someone_else(connect: Connect) -> None:
    queue = connect().create_queue("jobs", arena_bytes=256 * 1024)
    queue.put(b"\x01" * 20_000)
    message = queue.get()
    view = message.view
    message.extend(0)

    with next_message(connect().queue("jobs")) as again:
        assert again.view == view

    overwrite(queue, 20_000)
    assert view == b"\x01" * 20_000


def test_slices_of_a_view_keep_its_bytes(small: Queue) -> None:
    small.put(b"\x01" * 20_000)
    message = small.get()
    part = message.view[5000:6000]
    message.ack()
    del message
    gc.collect()

    overwrite(small, 20_000)

    assert part == b"\x01" * 1000


def test_numpy_reads_a_message_in_place(small: Queue) -> None:
    numpy = pytest.importorskip("numpy")
    numbers = numpy.arange(2500, dtype=numpy.int64)
    small.put(numbers)
    message = small.get()
    array = numpy.frombuffer(message.view, dtype=numpy.int64)
    message.ack()
    del message
    gc.collect()

    overwrite(small, 20_000)

    assert not array.flags.writeable
    assert not array.flags.owndata
    assert (array == numbers).all()
    assert array.ctypes.data % 8 == 0


def test_numpy_writes_a_message_in_place(queue: Queue) -> None:
    numpy = pytest.importorskip("numpy")
    with queue.loan(8 * 1000) as view:
        array = numpy.frombuffer(view, dtype=numpy.float64)
        array[:] = numpy.linspace(0, 1, 1000)
        del array

    got = numpy.frombuffer(queue.get().view, dtype=numpy.float64)
    assert (got == numpy.linspace(0, 1, 1000)).all()


@pytest.mark.only_local("a view of a remote message is a copy")
def test_a_view_keeps_its_place_in_the_capacity_while_it_lives(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put(b"first")
    message = queue.get()
    view = message.view
    message.ack()

    with pytest.raises(shmq.Full):
        queue.put(b"second")

    view.release()
    del view, message
    gc.collect()
    queue.put(b"second")
    assert drain(queue) == [b"second"]


@pytest.mark.only_local("a view of a remote message is a copy")
def test_the_end_of_a_view_makes_room_for_waiting_puts(connect: Connect) -> None:
    queue = connect().create_queue("jobs", capacity=1)
    queue.put(b"first")
    message = queue.get()
    view = message.view
    message.ack()
    waiter = in_thread(connect().queue("jobs").put, b"second", True)
    putter_asleep(queue)

    view.release()
    del view, message
    gc.collect()

    outcome(waiter)
    assert drain(queue) == [b"second"]


def test_each_of_several_views_keeps_the_bytes(small: Queue) -> None:
    small.put(b"\x01" * 20_000)
    message = small.get()
    first, second = message.view, message.view
    message.ack()
    first.release()
    del first, message
    gc.collect()

    overwrite(small, 20_000)

    assert second == b"\x01" * 20_000


def test_views_that_are_gone_leave_nothing_behind(small: Queue) -> None:
    for number in range(200):
        small.put(bytes([number]) * 50_000)
        message = small.get()
        view = message.view
        message.ack()
        assert view[-1] == number
        del view, message

    gc.collect()
    assert small.stats().arena_used == 0


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_into_a_loan_is_put(queue: Queue, size: int) -> None:
    body = bytes(number % 251 for number in range(size))

    with queue.loan(size) as view:
        view[:] = body

    message = queue.get()
    assert (message.body, message.codec) == (body, "bytes")


def test_a_loan_is_writable_and_of_the_size_asked_for(queue: Queue) -> None:
    loan = queue.loan(100)

    assert not loan.view.readonly
    assert loan.view.nbytes == 100
    loan.drop()


def test_a_commit_says_what_a_put_says(queue: Queue) -> None:
    first = queue.put(b"1")
    loan = queue.loan(1)
    loan.view[:] = b"2"

    put = loan.commit()

    assert put.sequence > first.sequence
    assert not put.duplicate


def test_a_loan_keeps_what_its_commit_said(queue: Queue) -> None:
    loan = queue.loan(1)
    assert loan.put is None

    with loan as view:
        view[:] = b"1"

    assert loan.put is not None
    assert loan.put.sequence == queue.get().sequence


def test_a_loan_that_was_dropped_has_put_nothing(queue: Queue) -> None:
    loan = queue.loan(1)

    loan.drop()

    assert loan.put is None


def test_a_commit_may_be_shorter_than_the_loan(queue: Queue) -> None:
    loan = queue.loan(100)
    loan.view[:5] = b"hello"

    loan.commit(5)

    message = queue.get()
    assert (message.body, message.view.nbytes) == (b"hello", 5)


@pytest.mark.parametrize("size", [-1, 101])
def test_a_commit_of_more_than_the_loan_is_refused_and_may_be_repeated(
    queue: Queue, size: int
) -> None:
    loan = queue.loan(100)

    with pytest.raises(ValueError, match="100"):
        loan.commit(size)

    assert queue.empty()
    loan.commit(1)
    assert queue.qsize() == 1


def test_a_loan_is_not_seen_until_it_is_committed(queue: Queue, other: Queue) -> None:
    loan = queue.loan(1)

    assert other.get_many(1, block=False) == []
    assert other.qsize() == 0
    loan.commit()
    assert other.qsize() == 1


def test_a_loan_takes_its_place_when_it_is_committed(queue: Queue) -> None:
    loan = queue.loan(4)
    loan.view[:] = b"loan"
    queue.put(b"put")

    loan.commit()

    assert drain(queue) == [b"put", b"loan"]


def test_a_loan_carries_properties(queue: Queue) -> None:
    with queue.loan(2, priority=shmq.HIGH, group="g", headers={"k": 1}, codec="json") as view:
        view[:] = b"42"

    message = queue.get()
    assert (message.priority, message.group, message.codec) == (shmq.HIGH, "g", "json")
    assert (dict(message.headers), message.body) == ({"k": 1}, 42)


def test_a_loan_may_be_delayed(queue: Queue) -> None:
    with queue.loan(1, delay=LATER):
        pass

    assert queue.stats().delayed == 1


def test_a_dropped_loan_puts_nothing_and_gives_its_space_back(small: Queue) -> None:
    for _ in range(50):
        loan = small.loan(100_000)
        loan.drop()
        loan.drop()

    assert small.empty()
    assert small.stats().arena_used == 0


def test_an_exception_in_a_loan_drops_it(queue: Queue) -> None:
    with pytest.raises(RuntimeError, match="failed"), queue.loan(10):
        raise RuntimeError("failed")

    assert queue.empty()
    assert queue.stats().arena_used == 0


def test_a_committed_loan_cannot_be_written_any_more(queue: Queue) -> None:
    loan = queue.loan(5)
    view = loan.view
    view[:] = b"final"
    loan.commit()

    with pytest.raises((ValueError, TypeError)):
        view[:] = b"wrong"

    assert queue.get().body == b"final"


def test_a_loan_is_committed_once(queue: Queue) -> None:
    loan = queue.loan(1)
    loan.commit()

    with pytest.raises(ValueError, match="commit"):
        loan.commit()
    loan.drop()

    assert queue.qsize() == 1


def test_a_dropped_loan_cannot_be_committed(queue: Queue) -> None:
    loan = queue.loan(1)
    loan.drop()

    with pytest.raises(ValueError, match="drop"):
        loan.commit()

    assert queue.empty()


def test_a_loan_that_was_forgotten_is_dropped(small: Queue) -> None:
    for _ in range(5):
        small.loan(100_000)
        gc.collect()

    assert small.stats().arena_used == 0


def test_a_loan_larger_than_any_message_is_refused_at_once(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_message_bytes=1000)

    with pytest.raises(shmq.MessageTooLarge, match="1001"):
        queue.loan(1001, block=True)


def test_a_loan_from_a_full_queue_is_refused_as_a_put_is(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put(b"x")

    with pytest.raises(shmq.Full):
        queue.loan(1)
    with pytest.raises(shmq.Full):
        queue.loan(1, timeout=SOON)


def test_a_loan_waits_for_room_as_a_put_does(connect: Connect) -> None:
    queue = connect().create_queue("jobs", capacity=1, overflow="block")
    queue.put(b"x")
    other = connect().queue("jobs")

    def lend() -> None:
        with other.loan(1) as view:
            view[:] = b"y"

    waiter = in_thread(lend)
    putter_asleep(queue)

    queue.get().ack()

    outcome(waiter)
    assert drain(queue) == [b"y"]


@pytest.mark.only_local("a remote loan takes no space before its commit")
def test_a_loan_takes_its_place_in_the_capacity(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    loan = queue.loan(1)

    with pytest.raises(shmq.Full):
        queue.put(b"x")

    loan.drop()
    queue.put(b"x")
