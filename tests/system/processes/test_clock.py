"""The wall clock jumps: leases, delays and timeouts do not, and nothing hangs.

The children run with a small library before the C library, which adds a number of
seconds to the wall clock; the monotonic clock is the real one. Waits until a time of the
wall clock go by the one that jumps, as they would if the machine's were set, and are
counted, as those on the monotonic clock are.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from shmq import Broker, Message, Queue
from tests.support.jumping_clock import build_shim, needs_cc, run_jumping
from tests.support.processes import HOUR, drain, is_empty
from tests.support.stopped import locks_of_queue
from tests.support.waiting import PATIENCE

#: What each script begins with: ``jump`` sets the wall clock forward, or back.
BEGIN = """
import mmap, os, sys, threading, time
import shmq
with open(os.environ["JUMP"], "r+b") as file:
    offset = mmap.mmap(file.fileno(), 4096)

def jump(seconds):
    before = time.time()
    offset[:8] = int(seconds).to_bytes(8, "little", signed=True)
    assert abs(time.time() - before) > 1000 or not seconds

BY_WALL, SEMAPHORES, MUTEXES = 8, 16, 24

def waits(kind):
    return int.from_bytes(offset[kind : kind + 8], "little")

def until_waits(kind, more_than):
    while waits(kind) <= more_than:
        time.sleep(0.001)

queue = shmq.connect(sys.argv[1]).queue("q")
YEAR = 365 * 24 * 3600.0

def asleep(getters=0, putters=0):
    while (queue.stats().waiting_get, queue.stats().waiting_put) != (getters, putters):
        time.sleep(0.002)

def in_thread(call, *arguments):
    results = []
    thread = threading.Thread(target=lambda: results.append(call(*arguments)))
    thread.start()
    return lambda: (thread.join(), results[0])[1]
"""

JUMPS = {"forward": "YEAR", "back": "-YEAR", "to 1970": "-time.time()"}
each_jump = pytest.mark.parametrize(
    "jump", ["forward", "back", pytest.param("to 1970", marks=pytest.mark.prove)]
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes the wall clock jump."""
    return build_shim(tmp_path_factory.mktemp("clock"))


@needs_cc
@each_jump
def test_a_lease_neither_ends_nor_lasts_longer(
    shim: Path, namespace: str, broker: Broker, jump: str
) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    code = f"""
queue.put(b"1")
message = queue.get()
jump({JUMPS[jump]})
assert queue.get_many(1, block=False) == []
message.ack()
queue.put(b"2")
queue.get().extend(0.2)
again = queue.get(timeout=1000)
assert (again.body, again.delivery_count) == (b"2", 2)
again.ack()
"""
    run_jumping(shim, BEGIN + code, namespace)

    is_empty(queue)


@needs_cc
@each_jump
def test_delays_and_times_to_live_stay_what_they_are(
    shim: Path, namespace: str, queue: Queue, jump: str
) -> None:
    code = f"""
queue.put(b"late", delay=1000)
queue.put(b"soon", delay=0.2)
queue.put(b"lives", ttl=1000)
jump({JUMPS[jump]})
assert {{queue.get(timeout=30).body for _ in range(2)}} == {{b"lives", b"soon"}}
assert queue.get_many(1, block=False) == []
assert queue.stats().delayed == 1
"""
    run_jumping(shim, BEGIN + code, namespace)

    assert drain(queue) == [b"soon", b"lives"]
    queue.purge()


@pytest.mark.prove
@needs_cc
@each_jump
def test_a_timeout_is_neither_cut_short_nor_stretched(
    shim: Path, namespace: str, queue: Queue, jump: str
) -> None:
    code = f"""
def wait():
    begun = time.monotonic()
    try:
        queue.get(timeout=0.3)
    except shmq.Empty:
        return time.monotonic() - begun
waited = in_thread(wait)
until_waits(SEMAPHORES, 0)
jump({JUMPS[jump]})
assert waited() >= 0.3
assert wait() >= 0.3
"""
    run_jumping(shim, BEGIN + code, namespace)

    is_empty(queue)


@needs_cc
@each_jump
def test_a_sleeper_wakes_for_its_message(
    shim: Path, namespace: str, queue: Queue, jump: str
) -> None:
    code = f"""
got = in_thread(lambda: queue.get(timeout=1000).body)
asleep(getters=1)
jump({JUMPS[jump]})
queue.put(b"1")
assert got() == b"1"
got = in_thread(lambda: queue.get().body)
asleep(getters=1)
queue.put(b"2")
assert got() == b"2"
asleep()
"""
    run_jumping(shim, BEGIN + code, namespace)

    assert drain(queue) == [b"1", b"2"]


@needs_cc
@each_jump
def test_ids_within_the_window_and_ages_do_not_jump(
    shim: Path, namespace: str, broker: Broker, jump: str
) -> None:
    queue = broker.create_queue("q", dedupe_window=1000.0)
    code = f"""
queue.put(b"1", dedupe_id="1")
jump({JUMPS[jump]})
assert queue.put(b"1", dedupe_id="1").duplicate
stats = queue.stats()
assert 0 <= stats.oldest_age < 100
assert 0 <= stats.rate_in < 1e9
"""
    run_jumping(shim, BEGIN + code, namespace)

    assert drain(queue) == [b"1"]


@needs_cc
@each_jump
def test_a_queue_made_in_another_year_is_a_queue(
    shim: Path, namespace: str, broker: Broker, jump: str
) -> None:
    code = f"""
jump({JUMPS[jump]})
made = shmq.connect(sys.argv[1]).create_queue("made", dead_letter=None)
made.put(b"1")
"""
    broker.create_queue("q", dead_letter=None)
    run_jumping(shim, BEGIN + code, namespace)

    assert drain(broker.queue("made")) == [b"1"]


@needs_cc
def test_a_new_namespace_after_the_clock_was_set_back_takes_no_process_for_dead(
    shim: Path, namespace: str, broker: Broker
) -> None:
    code = """
queue.put(b"1")
message = queue.get()
jump(-time.time())
shmq.connect(sys.argv[1]).create_queue("made", dead_letter=None).close()
if os.fork() == 0:
    other = shmq.connect(sys.argv[1]).queue("q")
    assert other.get_many(1, block=False) == []
    os._exit(0)
_, status = os.wait()
assert status == 0
message.ack()
"""
    queue = broker.create_queue("q", dead_letter=None)
    run_jumping(shim, BEGIN + code, namespace)

    is_empty(queue)


# ---- each kind of wait, asleep when the clock is set back ----


@pytest.mark.prove
@needs_cc
def test_a_wait_that_asks_the_wall_clock_stretches_when_that_is_set_back(
    shim: Path, namespace: str, queue: Queue
) -> None:
    """posix_ipc's own timeout, which shmq therefore does not use."""
    code = """
import posix_ipc
semaphore = posix_ipc.Semaphore(None, posix_ipc.O_CREX, mode=0o600)
ended = threading.Event()

def wait():
    try:
        semaphore.acquire(2.0)
    except posix_ipc.BusyError:
        ended.set()

thread = threading.Thread(target=wait)
thread.start()
until_waits(BY_WALL, 0)
jump(-YEAR)
time.sleep(2.5)
assert not ended.is_set()
jump(0)
thread.join()
assert ended.is_set()
semaphore.unlink()
"""
    run_jumping(shim, BEGIN + code, namespace)

    is_empty(queue)


#: What waits half a second in vain, and raises or ends then.
WAITS = {
    "get": "queue.get(timeout=0.5)",
    "get_many": "queue.get_many(5, timeout=0.5)",
    "consume": "list(queue.consume(timeout=0.5))",
    "put": "full.put(b'2', timeout=0.5)",
    "put of a large body": "full.put(bytes(20_000), timeout=0.5)",
    "put_many": "full.put_many([b'2', b'3'], timeout=0.5)",
    "loan": "full.loan(20_000, timeout=0.5)",
}


@pytest.mark.prove
@needs_cc
@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_sleeps_does_not_stretch_when_the_clock_is_set_back(
    shim: Path, namespace: str, broker: Broker, wait: str
) -> None:
    code = f"""
full = shmq.connect(sys.argv[1]).queue("full")
full.put(b"1")

def wait():
    begun = time.monotonic()
    try:
        {WAITS[wait]}
    except (shmq.Empty, shmq.Full):
        pass
    return time.monotonic() - begun

waited = in_thread(wait)
until_waits(SEMAPHORES, 0)
jump(-YEAR)
assert waited() >= 0.5
assert waits(BY_WALL) == 0
"""
    queue = broker.create_queue("q", dead_letter=None)
    full = broker.create_queue("full", capacity=1, dead_letter=None)
    run_jumping(shim, BEGIN + code, namespace)

    assert drain(full) == [b"1"]
    is_empty(queue)


@needs_cc
def test_a_wait_for_the_lock_does_not_stretch_when_the_clock_is_set_back(
    shim: Path, namespace: str, queue: Queue
) -> None:
    lock = locks_of_queue(namespace, "q")["gets"]
    code = f"""
from pathlib import Path
from tests.support.stopped import Lock
lock = Lock(Path({str(lock.path)!r}), {lock.offset})
lock.take()
putting = in_thread(lambda: queue.put(b"1", True, group="g"))
until_waits(MUTEXES, 0)
jump(-YEAR)
until_waits(MUTEXES, waits(MUTEXES) + 1)  # its slice has ended, and another begun
lock.write(0)
assert putting().sequence == 1
assert waits(BY_WALL) == 0
"""
    run_jumping(shim, BEGIN + code, namespace)

    assert drain(queue) == [b"1"]


@pytest.mark.prove
def test_no_lease_ends_before_its_time(broker: Broker) -> None:
    """Leases begin by a clock that is coarse; what it lacks is not taken from them."""
    lengths = random.Random(20261122)
    queues = [
        broker.create_queue(
            f"q{number}",
            visibility_timeout=round(lengths.uniform(1.0, 1.5), 4),
            capacity=2000,
            dead_letter=None,
        )
        for number in range(10)
    ]
    for queue in queues:
        assert queue.put_many([b""] * 1000) == 1000
    held, again = list[Message](), set[tuple[str, int]]()
    until: dict[tuple[str, int], float] = {}

    def take(queue: Queue, most: int) -> None:
        begun = time.monotonic()
        for message in queue.get_many(most, block=False):
            key = queue.name, message.sequence
            if key not in until:
                until[key] = begun + queue.options.visibility_timeout
            elif key not in again:
                again.add(key)
                assert time.monotonic() >= until[key], f"{key} came early"
            held.append(message)

    for _ in range(1000):
        for queue in queues:
            take(queue, 1)
    last = time.monotonic() + PATIENCE
    while len(again) < 10_000:
        assert time.monotonic() < last
        for queue in queues:
            take(queue, 1000)
