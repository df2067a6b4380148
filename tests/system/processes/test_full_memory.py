"""A full /dev/shm: refused with what is wanted and available, never a signal, no loss.

Each script has a small /dev/shm of its own, in a mount namespace.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shmq import Broker, Queue
from tests.support.own_shm import own_shm, with_own_shm
from tests.support.processes import ROOT, SHM, drain, environment, files_of, run_script
from tests.support.waiting import PATIENCE

KIB = 1024

#: What each script begins with.
BEGIN = """
import os, re, sys
import shmq
from pathlib import Path

SHM = Path("/dev/shm")
broker = shmq.connect("full")

def fill(spare=0):
    # Takes all there is but so many pages.
    with open(SHM / "ballast", "wb") as file:
        space = os.statvfs(SHM)
        os.posix_fallocate(file.fileno(), 0, (space.f_bavail - spare) * space.f_frsize)

def make_room():
    os.unlink(SHM / "ballast")

def refused(call):
    # The wanted and the available bytes of the refusal.
    try:
        call()
    except shmq.NoSpace as error:
        told = str(error)
    else:
        raise AssertionError("it was not refused")
    numbers = re.fullmatch(
        r"/dev/shm is full: (\\d+) bytes wanted, (\\d+) available; .*--shm-size.*", told)
    assert numbers, told
    wanted, available = int(numbers[1]), int(numbers[2])
    assert isinstance(error_of(call), OSError)
    assert available < wanted, told
    space = os.statvfs(SHM)
    assert available <= space.f_blocks * space.f_frsize
    return wanted, available

def error_of(call):
    try:
        call()
    except shmq.NoSpace as error:
        return error

def taken():
    return sum(os.lstat(path).st_blocks for path in SHM.iterdir()) * 512

def drain(queue):
    bodies = []
    for message in queue.consume(block=False):
        bodies.append(message.body)
        message.ack()
    return bodies
"""


def run_small(code: str, size: str, options: str = "") -> str:
    """Run a script with a /dev/shm of that size."""
    return run_script(BEGIN + code, before=with_own_shm(size, options))


@own_shm
@pytest.mark.parametrize("spare", range(6))
def test_a_create_without_space_is_refused_and_leaves_nothing(spare: int) -> None:
    code = f"""
fill(spare={spare})
refused(lambda: broker.create_queue("q"))
assert broker.list_queues() == []
left = set(os.listdir(SHM)) - {{"ballast", "names.shmq@full", "shmq@full"}}
assert not left, left
make_room()
with broker.create_queue("q") as queue:
    queue.put(b"1")
    assert drain(queue) == [b"1"]
    queue.check()
"""
    run_small(code, "256k")


@pytest.mark.prove
@own_shm
def test_every_amount_of_space_is_either_enough_for_a_queue_or_refused() -> None:
    code = """
made = 0
for spare in range(40):
    fill(spare)
    try:
        with broker.create_queue("q") as queue:
            queue.check()
            made += 1
        broker.delete_queue("q")
    except shmq.NoSpace as error:
        assert "--shm-size" in str(error)
        assert broker.list_queues() == []
    make_room()
assert 0 < made < 40
"""
    run_small(code, "256k")


@own_shm
@pytest.mark.parametrize(
    "kind", ["put", "large put", "put_many", "loan", "group", "dedupe", "delay"]
)
def test_puts_are_refused_when_nothing_is_left_and_nothing_confirmed_is_lost(kind: str) -> None:
    puts = {
        "put": "queue.put(b'%d' % number)",
        "large put": "queue.put(b'%d' % number + bytes(20_000))",
        "put_many": "assert queue.put_many([b'%d' % number]) == 1",
        "loan": "loan = queue.loan(20_000); loan.view[:8] = b'%8d' % number; loan.commit(8)",
        "group": "queue.put(b'%d' % number, group=str(number))",
        "dedupe": "queue.put(b'%d' % number, dedupe_id=str(number))",
        "delay": "queue.put(b'%d' % number, delay=0.001, ttl=1000)",
    }
    code = f"""
queue = broker.create_queue("q", capacity=5000, dedupe_window=60.0, dead_letter=None)
number = 0
def put():
    {puts[kind]}
while True:
    try:
        put()
    except shmq.NoSpace:
        break
    number += 1
wanted, available = refused(put)
queue.check()
assert number > 3, number
got = []
while len(got) < number:
    message = queue.get()
    got.append(int(message.body.rstrip(bytes(1))))
    message.ack()
assert sorted(got) == list(range(number))
assert queue.get_many(1, block=False) == []
queue.check()
number = -1
put()
assert int(queue.get().body.rstrip(bytes(1))) == -1
"""
    run_small(code, "512k")


@own_shm
def test_a_queue_goes_on_after_a_refusal_and_purge_gives_the_space_back() -> None:
    code = """
queue = broker.create_queue("q")
empty = taken()
def fill_up():
    count = 0
    while True:
        try:
            queue.put(bytes(10_000))
        except shmq.NoSpace:
            return count
        count += 1
first = fill_up()
assert first > 10
full = taken()
held = queue.get()
refused(lambda: queue.put(bytes(100_000)))
queue.put(b"small")
assert held.body == bytes(10_000)
held.ack()
queue.put(bytes(10_000))
queue.check()
assert queue.purge() == first + 1
assert taken() <= empty + 16 * 1024, (empty, full, taken())
queue.check()
assert abs(fill_up() - first) <= 2
queue.purge()
other = broker.create_queue("other", dead_letter=None)
other.put(bytes(200_000))
assert drain(other) == [bytes(200_000)]
"""
    run_small(code, "1m")


@own_shm
def test_on_a_full_machine_everything_but_taking_more_goes_on() -> None:
    code = """
queue = broker.create_queue("q", dedupe_window=60.0)
queue.put_many([b"%d" % number for number in range(20)])
fill()
other = broker.queue("q")
assert broker.list_queues()[0].depth == 20
queue.stats(), queue.attachments(), queue.peek(), queue.qsize()
with queue.get() as message:
    assert message.body == b"0"
queue.put(b"in the place of the first")
queue.get().nack(delay=0)
other.get().extend(100)
assert len(other.get_many(5)) == 5
other.close()
for message in queue.consume(prefetch=4, block=False):
    view = message.view
    message.ack()
    del view
queue.check()
assert queue.stats().depth == queue.stats().in_flight == 0
queue.purge()
broker.delete_queue("q")
assert os.listdir(SHM) == ["ballast"]
"""
    run_small(code, "1m")


@own_shm
def test_attaching_more_handles_than_there_is_space_for_is_refused() -> None:
    code = """
queue = broker.create_queue("q", dead_letter=None)
queue.put(b"1")
fill()
handles = []
def attach():
    handles.append(broker.queue("q"))
while True:
    try:
        attach()
    except shmq.NoSpace:
        break
refused(attach)
assert len(handles) >= 60
assert handles[-1].get().body == b"1"
for summary in broker.list_queues():  # which needs no handle
    assert (summary.name, summary.depth, summary.in_flight, summary.problem) == ("q", 0, 1, None)
broker.delete_queue("q")
try:
    handles[0].get_nowait()
except shmq.QueueDeleted:
    pass
else:
    raise AssertionError("the queue lives on")
make_room()
assert os.listdir(SHM) in ([], ["shmq@full"])
"""
    run_small(code, "256k")


@own_shm
def test_dead_letters_wait_where_they_are_until_there_is_space() -> None:
    code = """
import logging
logging.getLogger("shmq").addHandler(logging.NullHandler())
queue = broker.create_queue("q")
dead = broker.queue("q.dlq")
queue.put_many([bytes(3000)] * 40)
messages = queue.get_many(40)
fill()
for message in messages:
    message.reject()
stats = queue.stats()
assert stats.dying > 0
assert stats.dying + dead.qsize() == 40
queue.check(), dead.check()
make_room()
import time
while queue.stats().dying:
    time.sleep(0.01)
assert [letter.dead.reason for letter in dead.get_many(50)] == ["rejected"] * 40
assert queue.stats().arena_used == 0
queue.check(), dead.check()
"""
    run_small(code, "1m")


@own_shm
def test_no_file_can_be_made_where_there_are_too_many() -> None:
    code = """
broker.create_queue("other", dead_letter=None)
files = []
def more():
    files.append(open(SHM / f"file-{len(files)}", "wb"))
try:
    while True:
        more()
except OSError:
    pass
for spare in range(6):
    try:
        broker.create_queue("q")
    except shmq.NoSpace as error:
        assert "/dev/shm" in str(error), error
        assert [summary.name for summary in broker.list_queues()] == ["other"], spare
    else:
        raise AssertionError(f"made a queue of {spare} files")
    files.pop().close()
    os.unlink(SHM / f"file-{len(files)}")
for _ in range(3):
    files.pop().close()
    os.unlink(SHM / f"file-{len(files)}")
broker.create_queue("q", dead_letter=None).put(b"1")
"""
    run_small(code, "1m", ",nr_inodes=60")


@own_shm
def test_a_namespace_cannot_begin_without_a_file_and_says_so() -> None:
    code = """
files = []
try:
    while True:
        files.append(open(SHM / f"file-{len(files)}", "wb"))
except OSError:
    pass
try:
    broker.create_queue("q")
except shmq.NoSpace as error:
    assert "/dev/shm" in str(error)
else:
    raise AssertionError("it was not refused")
"""
    run_small(code, "1m", ",nr_inodes=20")


@own_shm
def test_many_processes_on_a_full_machine_are_refused_and_never_killed() -> None:
    code = """
queue = broker.create_queue("q", capacity=100_000, dead_letter=None)
children = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        refusals = 0
        for round in range(400):
            try:
                queue.put(bytes([number]) * (5_000 if round % 2 else 200), group=str(round))
            except shmq.NoSpace:
                refusals += 1
                for message in queue.get_many(3, block=False):
                    assert len(set(message.body)) == 1
                    message.ack()
                queue.purge() if refusals % 10 == 0 else None
        os._exit(0 if refusals else 7)
    children.append(pid)
statuses = [os.waitpid(pid, 0)[1] for pid in children]
assert statuses == [0] * 4, statuses
queue.check()
for message in queue.consume(block=False):
    assert len(set(message.body)) == 1
    message.ack()
queue.purge()
assert queue.stats().arena_used == 0
queue.check()
"""
    run_small(code, "768k")


def blocks(namespace: str) -> int:
    """What the namespace takes in /dev/shm, in bytes."""
    return sum((SHM / name).stat().st_blocks for name in files_of(namespace)) * 512


def test_an_empty_queue_takes_at_most_64_kib_with_all_that_belongs_to_it(
    namespace: str, broker: Broker
) -> None:
    broker.create_queue("q")

    assert len(files_of(namespace)) == 8
    assert 0 < blocks(namespace) <= 64 * KIB


def test_an_attached_and_used_queue_takes_little_more(namespace: str, broker: Broker) -> None:
    queue = broker.create_queue("q")
    for _ in range(1000):
        queue.put(b"1")
        assert drain(queue) == [b"1"]

    assert blocks(namespace) <= 128 * KIB


def test_purge_gives_the_machine_its_memory_back(namespace: str, queue: Queue) -> None:
    empty = blocks(namespace)
    assert queue.put_many([bytes(1000)] * 10_000) == 10_000
    full = blocks(namespace)

    queue.purge()

    assert full > 10_000_000
    assert blocks(namespace) <= empty + 64 * KIB


def test_deleting_gives_the_machine_its_memory_back(
    namespace: str, broker: Broker, queue: Queue
) -> None:
    queue.put(bytes(1_000_000))
    assert blocks(namespace) > 1_000_000

    broker.delete_queue("q")

    assert blocks(namespace) <= 64 * KIB


def test_these_tests_run_the_shmq_that_is_tested() -> None:
    told = run_script("import shmq; print(shmq.__file__)")

    assert re.match(re.escape(str(ROOT)), told)
    assert Path(told.strip()).is_file()


@pytest.mark.prove
@own_shm
@pytest.mark.parametrize(
    "kind", ["queues", "streams", "groups", "exchanges", "schemas", "transactions"]
)
def test_every_operation_succeeds_or_is_refused_whole_at_every_count_of_free_pages(
    kind: str,
) -> None:
    done = subprocess.run(
        [*with_own_shm("24m"), sys.executable, "-m", "tests.system.processes.pages", kind],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
