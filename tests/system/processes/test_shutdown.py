"""The end of an interpreter, and closing in any order: clean whatever is still alive."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator

import pytest

import shmq
from shmq import Broker, Message, Queue
from tests.support.processes import HOUR, LARGE, attached, drain, is_empty, is_sound, run_script

#: What each script begins with. The queue holds five messages, small and large by turns.
BEGIN = """
import atexit, builtins, gc, itertools, os, sys, threading, time, weakref
import shmq
broker = shmq.connect(sys.argv[1])
queue = broker.queue("q")
"""

#: Ways to end with something alive. None of them closes anything unless it says so.
ALIVE = {
    "the handle": "",
    "the broker only": "del queue",
    "the handle only": "del broker",
    "a message": "message = queue.get()",
    "a large message": "queue.get().ack(); message = queue.get()",
    "all messages": "messages = queue.get_many(10)",
    "a message without its handle": "message = queue.get(); del queue, broker",
    "a settled message": "message = queue.get(); message.ack()",
    "a view": "view = queue.get().view",
    "a large view": "messages = queue.get_many(2); view = messages[1].view",
    "a view without its message": "view = queue.get_many(2)[1].view; del queue, broker",
    "a view of a settled message": """
messages = queue.get_many(2)
views = [message.view for message in messages]
assert queue.ack_many(messages) == []
""",
    "a slice of a view": "part = queue.get_many(2)[1].view[5:10]",
    "a view in a cycle": """
cycle = [queue.get_many(2)[1].view, queue, broker]
cycle.append(cycle)
del queue, broker
""",
    "a view in a cycle of objects": """
class Node: pass
node = Node()
node.self, node.view, node.queue = node, queue.get_many(2)[1].view, queue
""",
    "an array over a view": """
import numpy
array = numpy.frombuffer(queue.get_many(2)[1].view, dtype=numpy.uint8)
reversed = array[::-1]
""",
    "an array over a loan": """
import numpy
loan = queue.loan(800)
array = numpy.frombuffer(loan.view, dtype=numpy.float64)
array[:] = 1.0
""",
    "a loan": "loan = queue.loan(20_000)",
    "a loan in a block": "block = queue.loan(20_000); view = block.__enter__()",
    "the view of a loan": "view = queue.loan(20_000).view",
    "the view of a committed loan": "loan = queue.loan(20); view = loan.view; loan.commit()",
    "the view of a dropped loan": "loan = queue.loan(20); view = loan.view; loan.drop()",
    "a consumer": "consumer = queue.consume(prefetch=3); message = next(consumer)",
    "a consumer without its handle": """
consumer = queue.consume(prefetch=3)
message = next(consumer)
del queue, broker
""",
    "a consumer with acknowledgements": """
consumer = queue.consume(prefetch=3)
next(consumer).ack()
""",
    "a message without its consumer": "message = next(queue.consume(prefetch=3))",
    "a generator in the middle": """
def work():
    with broker, queue, queue.consume(block=False) as consumer:
        for message in consumer:
            with message:
                yield message.view
work = work()
view = next(work)
""",
    "everything": """
messages = queue.get_many(3)
views = [message.view for message in messages]
loan = queue.loan(20_000)
consumer = queue.consume()
message = next(consumer)
""",
    "everything in builtins": """
builtins.kept = [broker, queue, queue.get_many(2)[1].view, queue.loan(10), queue.consume()]
del broker, queue
""",
    "everything in sys": """
sys.kept = [queue.get_many(2)[1].view, queue.loan(10), queue.consume(), queue, broker]
del broker, queue
""",
    "a handle that was closed": "view = queue.get_many(2)[1].view; queue.close()",
    "a broker that was closed": "view = queue.get_many(2)[1].view; broker.close()",
    "views of a deleted queue": """
other = broker.create_queue("other", dead_letter=None)
other.put(bytes(20_000))
view = other.get().view
loan = other.loan(20_000)
consumer = other.consume()
broker.delete_queue("other")
""",
    "an exit in a block": """
with queue.get() as message, queue.loan(100) as view:
    sys.exit()
""",
    "a handler that acknowledges": """
message = queue.get()
atexit.register(message.ack)
""",
    "a handler that closes, with views": """
view = queue.get_many(2)[1].view
atexit.register(broker.close)
""",
    "a finalizer that closes": """
class Owner: pass
owner = Owner()
owner.queue, owner.view = queue, queue.get_many(2)[1].view
weakref.finalize(owner, queue.close)
""",
    "objects that settle when they are collected": """
class Late:
    def __init__(self):
        self.message = queue.get()
    def __del__(self, error=shmq.ShmqError):
        try:
            self.message.nack(delay=0)
        except error:
            pass
late = [Late(), Late()]
late.append(late)
""",
    "a view that is dropped by another thread": """
views = [queue.get_many(2)[1].view]
thread = threading.Thread(target=views.clear)
thread.start()
thread.join()
""",
    "a thread that outlives the main one": """
started = threading.Event()
main = threading.current_thread()
def work():
    held = queue.get_many(2)
    view = held[1].view
    started.set()
    main.join()
    held[0].ack()
    queue.put(b"late")
threading.Thread(target=work).start()
started.wait()
""",
    "values of threads": """
kept = threading.local()
def work():
    kept.view, kept.queue = queue.get_many(2)[1].view, queue
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    "a daemon thread that waits": """
messages = queue.get_many(10)
threading.Thread(target=queue.get, daemon=True).start()
while not queue.stats().waiting_get:
    time.sleep(0.001)
""",
    "daemon threads that work": """
begun = threading.Semaphore(0)
def work():
    for number in itertools.count():
        queue.put(bytes(20_000))
        for message in queue.get_many(2):
            view = message.view
            message.ack()
        if number == 20:
            begun.release()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
for _ in range(3):
    begun.acquire()
""",
    "a child of a fork": """
view = queue.get_many(2)[1].view
if os.fork() == 0:
    other = queue.get().view
    sys.exit()
_, status = os.wait()
assert status == 0
""",
    "modules taken away": """
view = queue.get_many(2)[1].view
loan = queue.loan(100)
for name in [name for name in sys.modules if name.startswith("shmq")]:
    del sys.modules[name]
del shmq
gc.collect()
""",
}


@pytest.fixture
def filled(broker: Broker) -> Queue:
    """Queue ``q`` with three small messages and two large ones."""
    queue = broker.create_queue("q", visibility_timeout=HOUR, arena_bytes=1024 * 1024)
    for number in range(5):
        queue.put(bytes([number]) * (LARGE if number % 2 else 10))
    return queue


def is_given_back(queue: Queue) -> None:
    """Fail unless all that a process held came back, and the queue is sound and works."""
    assert attached(queue) == [os.getpid()]
    stats = queue.stats()
    assert (stats.in_flight, stats.waiting_get, stats.waiting_put) == (0, 0, 0)
    is_sound(queue)
    drain(queue)
    queue.purge()
    is_empty(queue)


@pytest.mark.prove
@pytest.mark.parametrize("alive", ALIVE)
def test_an_interpreter_ends_silently_whatever_is_alive(
    namespace: str, filled: Queue, alive: str
) -> None:
    run_script(BEGIN + ALIVE[alive], namespace)

    is_given_back(filled)


@pytest.mark.parametrize("alive", ["everything", "a daemon thread that waits"])
def test_an_interpreter_ends_silently_in_development_mode(
    namespace: str, filled: Queue, alive: str
) -> None:
    code = BEGIN + ALIVE[alive]

    run_script(code, namespace, options=("-X", "dev", "-W", "error"))

    is_given_back(filled)


#: What a daemon thread does with a queue that its process deletes at its end, and whether it does.
WITH_OWN_QUEUE = {
    "request": ("broker.request('q', 1)", "queue.qsize()"),
    "arequest": ("asyncio.run(broker.arequest('q', 1))", "queue.qsize()"),
    "get": ("own.get()", "own.stats().waiting_get"),
    "consume": ("[*own.consume()]", "own.stats().waiting_get"),
    "aget": ("asyncio.run(await_own())", "started.is_set()"),
}


@pytest.mark.parametrize("way", WITH_OWN_QUEUE)
def test_a_daemon_thread_that_uses_a_queue_of_its_process_ends_silently(
    namespace: str, broker: Broker, way: str
) -> None:
    broker.create_queue("q", dead_letter=None)
    work, works = WITH_OWN_QUEUE[way]
    code = f"""{BEGIN}
import asyncio
started = threading.Event()
async def await_own():
    getting = asyncio.create_task(own.aget())
    await asyncio.sleep(0)  # it waits now
    started.set()
    await getting
def work():
    {work}
waiting = threading.Thread(target=work, daemon=True)
atexit.register(waiting.join, 0.5)  # runs after the handler that deletes the process's queues
own = broker.create_queue("own", exclusive=True, dead_letter=None)
waiting.start()
while not {works}:
    time.sleep(0.001)
"""

    run_script(code, namespace)

    assert [summary.name for summary in broker.list_queues()] == ["q"]


def test_what_was_not_settled_at_the_end_is_delivered_again_and_counts(
    namespace: str, filled: Queue
) -> None:
    run_script(BEGIN + "messages = queue.get_many(3)", namespace)

    assert [message.delivery_count for message in filled.get_many(5)] == [2, 2, 2, 1, 1]


def test_what_was_prefetched_at_the_end_does_not_count(namespace: str, filled: Queue) -> None:
    run_script(BEGIN + "message = next(queue.consume(prefetch=4))", namespace)

    assert [message.delivery_count for message in filled.get_many(5)] == [2, 1, 1, 1, 1]


@pytest.mark.prove
def test_no_recovery_is_needed_after_daemon_threads(namespace: str, filled: Queue) -> None:
    for _ in range(5):
        run_script(BEGIN + ALIVE["a daemon thread that waits"], namespace)

    assert filled.stats().recoveries == 0


def test_a_process_may_end_while_its_queue_is_deleted_under_it(
    namespace: str, broker: Broker, filled: Queue
) -> None:
    code = BEGIN + ALIVE["everything"] + "broker.delete_queue('q')"

    run_script(code, namespace)

    assert [summary.name for summary in broker.list_queues()] == []


# ---- closing in every order ----


class Things:
    """A broker, a handle, a message and what reads and writes it in place."""

    def __init__(self, namespace: str) -> None:
        self.broker = shmq.connect(namespace)
        self.queue = self.broker.queue("q")
        self.message: Message | None = self.queue.get()
        self.views = [self.message.view, self.message.view[1:]]
        self.loan = self.queue.loan(LARGE)
        self.written = [self.loan.view[1:]]
        self.consumer = self.queue.consume(prefetch=2)
        self.handed: list[Message] = [next(self.consumer)]

    def settle(self) -> None:
        """Acknowledge the message, if that still can be."""
        assert self.message is not None
        try:
            self.message.ack()
        except (shmq.LeaseExpired, shmq.QueueDeleted):
            pass
        except shmq.ShmqError as error:
            assert "closed" in str(error)
        self.message = None

    def drop_views(self) -> None:
        """Free all memory."""
        self.views.clear()
        self.written.clear()
        self.handed.clear()

    def steps(self) -> dict[str, Callable[[], object]]:
        """What may be done, in any order."""
        return {
            "settle": self.settle,
            "views": self.drop_views,
            "loan": self.loan.drop,
            "consumer": self.consumer.close,
            "queue": self.queue.close,
            "broker": self.broker.close,
        }


ORDERS = list(itertools.permutations(["settle", "views", "loan", "consumer", "queue", "broker"]))


@pytest.fixture
def things(namespace: str, filled: Queue) -> Iterator[Callable[[], Things]]:
    """Makes things to close, over a queue that is full again each time."""

    def make() -> Things:
        while filled.stats().depth < 5:
            filled.put(b"\x05" * LARGE)
        return Things(namespace)

    yield make
    gc.collect()
    is_given_back(filled)


@pytest.mark.parametrize("first", sorted({order[0] for order in ORDERS}))
def test_closing_in_every_order_leaves_nothing_behind(
    filled: Queue, things: Callable[[], Things], first: str
) -> None:
    for order in ORDERS:
        if order[0] != first:
            continue
        made = things()
        body = bytes(made.views[0])
        for step in order:
            made.steps()[step]()
            assert all(view in (body, body[1:]) for view in made.views), (order, step)
        del made
        assert filled.stats().in_flight == 0, order
        is_sound(filled)


def test_views_outlive_everything_else_and_then_give_their_space_back(
    broker: Broker, filled: Queue, things: Callable[[], Things]
) -> None:
    made = things()
    views, written, body = made.views, made.written, bytes(made.views[0])
    made.settle()
    made.loan.drop()
    made.broker.close()
    del made
    gc.collect()
    assert attached(filled) == [os.getpid()] * 2

    while filled.put_many([b"\xff" * 500], block=False):
        pass
    drain(filled)

    assert [bytes(view) for view in views] == [body, body[1:]]
    written[0][:] = bytes(LARGE - 1)
    views.clear()
    written.clear()


def test_views_outlive_the_deletion_of_their_queue_and_everything_else(
    broker: Broker, namespace: str
) -> None:
    queue = broker.create_queue("other", dead_letter=None)
    queue.put(b"\x01" * LARGE)
    view = queue.get().view
    loan = queue.loan(LARGE)
    written = loan.view[1:]
    broker.delete_queue("other")
    queue.close()
    del queue, loan
    gc.collect()

    written[:] = b"\x02" * (LARGE - 1)

    assert view == b"\x01" * LARGE
    assert broker.list_queues() == []


def test_a_process_ends_although_a_daemon_thread_holds_what_its_wait_thread_needs(
    namespace: str, broker: Broker
) -> None:
    broker.create_queue("q", dead_letter=None)
    code = f"""{BEGIN}
import select
from shmq.client.local.waiting.wait_set import sets
held = threading.Event()
queue.fileno()
(waits,) = sets.values()
def hold():
    with waits.lock:
        waits.wake()
        while select.select([waits.watcher.wakeup], [], [], 0)[0]:  # until the thread has it
            time.sleep(0.001)
        held.set()
        time.sleep(1000)
threading.Thread(target=hold, daemon=True).start()
held.wait()
"""
    run_script(code, namespace)
