"""What a handle promises beyond its contract: collection, closing under a copy, copies."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue

LARGE = 32 * 1024 * 1024


@pytest.fixture
def local(namespace: str) -> LocalBroker:
    return LocalBroker(namespace)


MADE: dict[str, Callable[[LocalQueue], object]] = {
    "message": lambda handle: handle.get(),
    "view": lambda handle: handle.get().view,
    "loan": lambda handle: handle.loan(8192),
    "consumer": lambda handle: (consumer := handle.consume(), next(consumer)),
}


@pytest.mark.parametrize("held", MADE)
def test_a_circle_of_a_handle_and_what_it_gave_is_collected(local: LocalBroker, held: str) -> None:
    with local:
        queue = local.create_queue("q", dead_letter=None)
        queue.put(bytes(8192))

        make_circle(local.queue("q"), MADE[held])
        gc.collect()

        assert len(queue.attachments()) == 1
        assert queue.get(timeout=30).body == bytes(8192)
        queue.check()


def make_circle(handle: LocalQueue, make: Callable[[LocalQueue], object]) -> None:
    handle.held = [make(handle), handle]  # type: ignore[attr-defined]


@pytest.mark.prove
def test_closing_a_handle_under_a_large_put_gives_its_bytes_to_no_other(local: LocalBroker) -> None:
    with local:
        queue = local.create_queue(
            "q", arena_bytes=LARGE, max_message_bytes=LARGE, dead_letter=None
        )
        for _ in range(5):
            victim = local.queue("q")
            outcome: list[object] = []
            writer = threading.Thread(target=put_or_fail, args=(victim, outcome))
            writer.start()
            while not queue.stats().arena_used and not outcome:
                pass
            victim.close()
            while not queue.qsize() and writer.is_alive():
                try_to_put(queue)
            writer.join()

            for message in queue.consume(block=False):
                assert len(set(message.body[:: 1 << 16])) == 1
                message.ack()
            queue.check()


def put_or_fail(queue: LocalQueue, outcome: list[object]) -> None:
    try:
        outcome.append(queue.put(b"\xaa" * LARGE))
    except Exception as error:
        outcome.append(error)


def try_to_put(queue: LocalQueue) -> None:
    with contextlib.suppress(shmq.Full):
        queue.put(b"\x55" * (LARGE - 4096))


def test_a_message_that_another_process_views_can_be_peeked_at_and_redriven(
    local: LocalBroker,
) -> None:
    with local:
        jobs = local.create_queue("jobs")
        jobs.put(b"body", headers={"a": 1})
        jobs.get().reject()
        dead_letter_queue = local.queue("jobs.dlq")
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            message = dead_letter_queue.get()
            view = message.view
            message.nack(delay=0)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            os._exit(view[0] != ord("b"))
        os.read(ready[0], 1)

        (copy,) = dead_letter_queue.peek()
        moved = jobs.redrive()

        os.write(go[1], b"x")
        assert os.waitpid(child, 0)[1] == 0
        assert (copy.body, copy.headers, moved) == (b"body", {"a": 1}, 1)
        assert jobs.get().body == b"body"
        for end in (*ready, *go):
            os.close(end)


def test_a_put_that_was_done_does_not_fail_for_want_of_descriptors(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local:
        queue = local.create_queue("q", dead_letter=None)

        def out_of_descriptors(_: LocalQueue) -> None:
            raise OSError(24, "Too many open files", str(Path("/dev/shm")))

        monkeypatch.setattr(LocalQueue, "_reclaim_dead", out_of_descriptors)
        queue._look_for_dead()

        assert queue.put(b"x").sequence == 1


def test_a_handle_shows_the_names_of_the_contract_and_no_others(local: LocalBroker) -> None:
    with local, local.create_queue("q", dead_letter=None) as queue:
        shown = {name for name in dir(queue) if not name.startswith("_")}

    assert shown == {name for name in dir(shmq.Queue) if not name.startswith("_")}
    assert {"put", "get", "consume", "stats", "name"} <= shown


def test_help_shows_what_the_contract_promises(local: LocalBroker) -> None:
    with local, local.create_queue("q", dead_letter=None) as queue:
        queue.put(b"1")
        for thing, promised in (
            (local.create_queue, shmq.Broker.create_queue),
            (queue.put, shmq.Queue.put),
            (queue.consume, shmq.Queue.consume),
            (queue.empty, shmq.Queue.empty),
            (queue.get().nack, shmq.Message.nack),
            (queue.loan(1).commit, shmq.Loan.commit),
            (queue.consume().flush, shmq.Consumer.flush),
        ):
            assert inspect.getdoc(thing) == inspect.getdoc(promised)


def test_a_closed_handle_says_so_where_it_is_shown(local: LocalBroker) -> None:
    with local:
        queue = local.create_queue("q", dead_letter=None)
        assert "closed" not in repr(queue)
        queue.close()

        assert "'q'" in repr(queue)
        assert "closed" in repr(queue)
