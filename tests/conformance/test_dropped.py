"""A leased message that is dropped gives a ResourceWarning.

Other levels: system/client/remote/test_dropped.py.
"""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from shmq import Broker, Queue, Share
from tests.support.processes import run_script

from .conftest import Connect

HINT = (
    "was dropped while it was leased, and comes back only when the lease ends or the handle is "
    "closed: call ack(), nack() or reject(), or use it as a context manager"
)


def said(operation: Callable[[], object]) -> list[str]:
    """The warnings about what the operation drops; its value is dropped, too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        operation()
        gc.collect()
    ours = [one for one in caught if issubclass(one.category, ResourceWarning)]
    assert all(one.filename == __file__ for one in ours)
    return [str(one.message) for one in ours if HINT in str(one.message)]


def circle(what: object) -> None:
    """Leave it to the collector: it holds itself."""
    holder: list[Any] = [what]
    holder.append(holder)


def consumed(queue: Queue) -> object:
    """One of three that were leased ahead; the others go back by themselves."""
    with queue.consume(timeout=0) as consumer:
        return next(consumer)


ONE: dict[str, Callable[[Queue], object]] = {
    "get": lambda queue: queue.get(),
    "get where": lambda queue: queue.get(where="priority >= 0"),
    "get_many": lambda queue: queue.get_many(1),
    "consume": consumed,
    "aget": lambda queue: asyncio.run(queue.aget()),
    "a circle": lambda queue: circle(queue.get()),
}


@pytest.mark.parametrize("way", ONE)
def test_a_message_that_is_dropped_while_it_is_leased_is_named(queue: Queue, way: str) -> None:
    queue.put_many([b"one", b"two", b"three"])

    assert said(lambda: ONE[way](queue)) == [f"message 1 of queue 'q' {HINT}"]
    assert queue.get(block=False).ack() is None


@pytest.mark.parametrize("way", ["get_batch", "get_packed"])
def test_a_batch_that_is_dropped_while_it_is_leased_is_named(queue: Queue, way: str) -> None:
    queue.put_many([b"one", b"two", b"three"])

    (text,) = said(lambda: getattr(queue, way)(3))

    assert text.startswith("a batch of 3 messages, ")
    assert text.endswith(f" of queue 'q' {HINT}")


@pytest.fixture
def share(broker: Broker) -> Share:
    """A member of a group that shares a stream of three records."""
    stream = broker.create_stream("s", partitions=1)
    stream.append_many([b"one", b"two", b"three"])
    return stream.share("g")


SHARED: dict[str, Callable[[Share], object]] = {
    "get": lambda share: share.get(),
    "consume": lambda share: next(share.consume(timeout=0)),
}


@pytest.mark.parametrize("way", SHARED)
def test_a_record_that_is_dropped_while_it_is_lent_is_named(share: Share, way: str) -> None:
    assert said(lambda: SHARED[way](share)) == [
        f"the record of partition 0, offset 0, lent by group 'g' of stream 's', {HINT}"
    ]


SETTLED: dict[str, Callable[[Queue], object]] = {
    "ack": lambda queue: queue.get().ack(),
    "nack": lambda queue: queue.get().nack(60),
    "reject": lambda queue: queue.get().reject(),
    "with": lambda queue: queue.get().__enter__().__exit__(None, None, None),
    "ack by the queue": lambda queue: queue.ack(queue.get()),  # type: ignore[arg-type]
    "ack_many": lambda queue: queue.ack_many(queue.get_many(3)),
    "its receipt": lambda queue: queue.get().receipt,
    "a consumer": lambda queue: [message.ack() for message in queue.consume(timeout=0)],
    "leased ahead": lambda queue: next(queue.consume(timeout=0)).ack(),
    "a batch": lambda queue: queue.get_batch(3).ack(),
    "a batch's nack": lambda queue: queue.get_batch(3).nack(),
    "a batch's receipts": lambda queue: queue.get_batch(3).receipts,
    "a packed batch": lambda queue: queue.get_packed(3).ack(),
    "an empty batch": lambda queue: (queue.purge(), queue.get_batch(3, block=False)),
    "peek": lambda queue: queue.peek(3),
}


@pytest.mark.parametrize("way", SETTLED)
def test_what_is_settled_or_settles_elsewhere_is_dropped_in_silence(queue: Queue, way: str) -> None:
    queue.put_many([b"one", b"two", b"three"])

    assert said(lambda: SETTLED[way](queue)) == []


def test_a_record_that_is_settled_or_left_by_its_receipt_is_dropped_in_silence(
    share: Share,
) -> None:
    def settle() -> None:
        share.get().ack()
        share.get().nack()
        share.ack_many([share.get().receipt])

    assert said(settle) == []


def test_a_message_whose_lease_is_over_is_dropped_in_silence(broker: Broker) -> None:
    queue = broker.create_queue("short", visibility_timeout=0.05)
    queue.put(b"one")

    def outlast() -> None:
        message = queue.get()
        assert queue.get(timeout=60).sequence == message.sequence

    # Of the second lease it is said, if it is not over by then as well.
    assert len(said(outlast)) <= 1


def test_what_a_closed_handle_returned_is_dropped_in_silence(connect: Connect) -> None:
    broker = connect()
    queue = broker.create_queue("q")
    queue.put_many([b"one", b"two"])
    shared = broker.create_stream("s", partitions=1)
    shared.append(b"three")
    share = shared.share("g")

    def close() -> None:
        held = [queue.get(), queue.get_batch(1), share.get()]
        share.close()
        queue.close()
        broker.close()
        assert held

    assert said(close) == []


def test_a_deleted_queue_s_messages_are_dropped_in_silence(broker: Broker, queue: Queue) -> None:
    queue.put(b"one")

    def delete() -> None:
        message = queue.get()
        broker.delete_queue("q")
        assert not message.settled

    # A client of a server is not told that the queue is gone, until it asks.
    assert len(said(delete)) <= (0 if "Local" in type(broker).__name__ else 1)


def test_in_a_fork_s_child_the_parent_s_lease_is_dropped_in_silence(queue: Queue) -> None:
    queue.put(b"one")
    held = [queue.get()]

    pid = os.fork()
    if not pid:
        os._exit(len(said(held.clear)))

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    held[0].ack()


def test_at_the_interpreter_s_end_nothing_is_said(namespace: str, connect: Connect) -> None:
    queue = connect().create_queue("q")
    queue.put_many([b"one", b"two"])

    run_script(
        "import sys, shmq\n"
        "queue = shmq.connect(sys.argv[1]).queue('q')\n"
        "held = [queue.get(), queue.get_batch(1)]\n",
        namespace,
        options=("-W", "error"),
    )


def test_where_the_warning_is_an_error_it_is_shown_and_nothing_else_changes(
    queue: Queue, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: shown.append(str(what.exc_value)))
    queue.put_many([b"one", b"two"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with pytest.raises(ZeroDivisionError):
            _fail_with(queue.get())

    assert shown == [f"message 1 of queue 'q' {HINT}"]
    queue.get(block=False).ack()


def _fail_with(message: object) -> None:
    raise ZeroDivisionError
