"""What a container does to /dev/shm: read-only, small, one of its own, or one for several.

A script that has a /dev/shm of its own has it in a mount namespace, as in a container.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest

import shmq
from shmq import Broker, Queue, Record, Stream
from shmq.host.namespace.namespace import Namespace
from tests.support.own_shm import own_shm, with_own_shm
from tests.support.processes import (
    HOUR,
    ROOT,
    SHM,
    Start,
    drain,
    environment,
    files_of,
    is_empty,
    is_sound,
    run_script,
    why_not,
)
from tests.support.stopped import lock_of_partition, locks_of_queue
from tests.support.waiting import PATIENCE


def run_contained(code: str, size: str = "64m") -> str:
    """Run a script with a /dev/shm of its own, of that size."""
    return run_script(code, before=with_own_shm(size))


@pytest.mark.prove
@own_shm
def test_a_read_only_shm_is_an_error_that_names_the_file_whatever_is_tried() -> None:
    code = """
import errno, subprocess, sys
make = 'import shmq; shmq.connect("ro").create_queue("q", dead_letter=None).put(b"1")'
subprocess.run([sys.executable, "-c", make], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", "/dev/shm"], check=True)
import shmq
broker, other = shmq.connect("ro"), shmq.connect("new")
tries = {
    "create": lambda: broker.create_queue("r"),
    "attach": lambda: broker.queue("q"),
    "ensure": lambda: broker.ensure_queue("q"),
    "delete": lambda: broker.delete_queue("q"),
    "begin": lambda: other.create_queue("q"),
}
for name, call in tries.items():
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EROFS, (name, error)
        assert "/dev/shm/shmq@" in str(error), (name, error)
    else:
        raise AssertionError(f"{name} was not refused")
"""
    run_contained(code)


@own_shm
def test_the_64_mb_of_a_container_are_refused_with_what_to_do_and_used_up_to_there() -> None:
    code = """
import shmq
queue = shmq.connect("small").create_queue(
    "q", arena_bytes=256 << 20, max_message_bytes=1 << 20, dead_letter=None)
put = 0
try:
    while True:
        queue.put(bytes(1 << 20))
        put += 1
except shmq.NoSpace as error:
    assert "--shm-size" in str(error), error
assert 32 <= put < 64, put
for _ in range(put):
    queue.get().ack()
queue.put(bytes(1 << 20))
"""
    run_contained(code)


@own_shm
def test_a_shm_of_its_own_shares_no_queue_with_the_others(namespace: str, queue: Queue) -> None:
    queue.put(b"outside")
    code = f"""
import shmq
broker = shmq.connect({namespace!r})
assert broker.list_queues() == []
broker.create_queue("q", dead_letter=None).put(b"inside")
"""
    run_contained(code)

    assert drain(queue) == [b"outside"]


# ---- one /dev/shm for several PID namespaces ----

PID = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")

own_pids = pytest.mark.skipif(
    bool(why_not(*PID, "true")),
    reason=f"no PID namespace can be made here: {why_not(*PID, 'true')}",
)

#: What a script begins with that has a PID namespace of its own.
ELSEWHERE = """
import os, sys
import shmq
from tests.support.stopped import lock_of_partition, locks_of_group, locks_of_queue
assert os.getpid() == 1
broker = shmq.connect(sys.argv[1])
"""


@contextlib.contextmanager
def elsewhere(code: str, namespace: str) -> Iterator[subprocess.Popen[str]]:
    """A script in a PID namespace of its own, which is killed in the end."""
    process = subprocess.Popen(
        [*PID, sys.executable, "-c", ELSEWHERE + code, namespace],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()  # with it its child, the first of the PID namespace
        process.communicate(timeout=PATIENCE)


def says(process: subprocess.Popen[str]) -> str:
    """The next line that the script prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@own_pids
def test_processes_of_two_pid_namespaces_share_a_queue_a_stream_and_a_group(
    namespace: str, broker: Broker
) -> None:
    queue, stream = broker.create_queue("q"), broker.create_stream("s", partitions=1)
    queue.put(b"from here")
    stream.append(b"from here")
    code = """
queue, stream = broker.queue("q"), broker.stream("s")
message = queue.get()
assert message.body == b"from here"
message.ack()
queue.put(b"from there", group="g")
with stream.group("g").join() as member:
    assert [record.value for record in member.poll(timeout=60)[0]] == [b"from here"]
    member.commit()
stream.append(b"from there")
assert [one.pid for one in queue.attachments()] == [0, 1]
"""
    run_script(ELSEWHERE + code, namespace, before=PID)

    assert drain(queue) == [b"from there"]
    assert [record.value for record in stream.read(0, 0)] == [b"from here", b"from there"]
    assert stream.group("g").committed() == {0: 1}
    is_sound(queue)


#: What leaves the locks of everything held, and says so.
HOLDS = """
queue, stream = broker.queue("q"), broker.stream("s")
group = stream.group("g").join()
for lock in (*locks_of_queue(sys.argv[1], "q").values(), lock_of_partition(sys.argv[1], "s"),
             *locks_of_group(sys.argv[1], "g")):
    lock.take()
print("held", flush=True)
sys.stdin.read()
"""

#: What is tried meanwhile.
TRIES: dict[str, Callable[[Broker], object]] = {
    "queue": lambda broker: broker.queue("q").qsize(),
    "stream": lambda broker: broker.stream("s").append(b"2"),
    "group": lambda broker: broker.stream("s").group("g").members(),
}


@own_pids
def test_what_a_living_process_of_another_pid_namespace_holds_is_not_taken_from_it_until_it_dies(
    namespace: str, broker: Broker
) -> None:
    queue, stream = broker.create_queue("q"), broker.create_stream("s", partitions=1)
    queue.put(b"1")
    stream.append(b"1")
    with elsewhere(HOLDS, namespace) as process:
        assert says(process) == "held"
        for attempt in TRIES.values():
            with pytest.raises(shmq.LockTimeout) as caught:
                attempt(broker)
            assert caught.value.pid > 1  # it has a PID here, too
            assert f"PID {caught.value.pid} (" in str(caught.value)

    assert drain(queue) == [b"1"]
    assert queue.stats().recoveries == 1
    is_sound(queue)
    assert stream.append(b"2").offset == 1
    TRIES["group"](broker)


@own_pids
def test_a_holder_that_has_no_pid_here_is_named_by_what_is_known(
    namespace: str, broker: Broker
) -> None:
    """A process of a PID namespace does not see those outside of it."""
    queue, stream = broker.create_queue("q"), broker.create_stream("s", partitions=1)
    locks = locks_of_queue(namespace, "q")["gets"], lock_of_partition(namespace, "s")
    for lock in locks:
        lock.take()
    here, number = os.getpid(), locks[0].holder()
    code = f"""
for attempt, told in (
    (lambda: broker.queue("q"), "PID {here} of another PID namespace"),
    (lambda: broker.stream("s").append(b"1"), "process number {number}, which has no PID"),
):
    try:
        attempt()
    except shmq.LockTimeout as error:
        assert told in str(error), error
        assert error.pid == 0
    else:
        raise AssertionError("it was not refused")
"""
    run_script(ELSEWHERE + code, namespace, before=PID)

    for lock in locks:
        assert lock.holder() == Namespace.of(namespace).processes.own_number()
        lock.write(0)
    queue.put(b"1")
    stream.append(b"1")


#: Works on with a queue and a stream, until it is killed, somewhere.
WORKS = """
queue, stream = broker.queue("q"), broker.stream("s")
print("begun", flush=True)
number = 0
while True:
    number += 1
    body = b"%s %d" % (sys.argv[1].encode(), number)
    queue.put(body, group=f"g{number % 5}")
    stream.append(body)
    message = queue.get()
    message.ack()
"""


@own_pids
def test_kills_of_whole_pid_namespaces_lose_nothing(namespace: str, broker: Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    # They append as fast as they can: the ring must have room for all of it, on a busy machine too.
    stream = broker.create_stream("s", partitions=1, ring_bytes=1 << 28)
    for turn in range(3):
        with elsewhere(WORKS, namespace) as one, elsewhere(WORKS, namespace) as other:
            assert says(one) == says(other) == "begun"
            for number in range(100):
                queue.put(b"here", group=f"h{number % 3}")
                stream.append(b"here")
        # Each is killed between a put and the acknowledgement of one, or beside them.
        stats = queue.stats()
        assert stats.put == stats.acked + stats.depth + stats.in_flight, turn
        is_sound(queue)
    bodies = drain(queue)
    assert bodies.count(b"here") + queue.stats().acked >= 300
    records = [record.value for partition in (0,) for record in read_all(stream, partition)]
    assert records.count(b"here") == 300


def read_all(stream: Stream, partition: int) -> Iterator[Record]:
    """All records that the partition still has."""
    offset = 0
    while records := stream.read(partition, offset):
        yield from records
        offset = records.next_offset


# ---- one /dev/shm for several time namespaces ----

TIME = ("unshare", "--map-root-user", "--time", "--fork", "--monotonic", "100000")

own_time = pytest.mark.skipif(
    bool(why_not(*TIME, "true")), reason=f"no time namespace can be made: {why_not(*TIME, 'true')}"
)

#: What a script begins with that has another clock: what it tries is refused.
REFUSED = """
import os, sys
import shmq
broker = shmq.connect(sys.argv[1])

def refused(call):
    try:
        call()
    except shmq.ForeignSegment as error:
        text = str(error)
    else:
        raise AssertionError("it was not refused")
    assert str(os.stat("/proc/self/ns/time").st_ino) in text and sys.argv[2] in text, text
    assert "TCP" in text, text
"""


def time_namespace() -> int:
    """The number of this process's time namespace."""
    return os.stat("/proc/self/ns/time").st_ino


@own_time
def test_a_process_of_another_time_namespace_is_refused_with_both_numbers_and_what_to_do(
    namespace: str, broker: Broker
) -> None:
    queue = broker.create_queue("q")
    queue.put(b"1")
    message = queue.get()
    code = """
for call in (
    lambda: broker.queue("q"),
    lambda: broker.ensure_queue("q"),
    lambda: broker.create_queue("new"),
    lambda: broker.delete_queue("q"),
    lambda: broker.create_stream("s"),
):
    refused(call)
assert "time namespace" in broker.list_queues()[0].problem
"""
    run_script(REFUSED + code, namespace, time_namespace(), before=TIME)

    message.ack()
    is_empty(queue)


@own_time
def test_a_process_that_has_but_a_stream_keeps_those_of_another_clock_out(
    namespace: str, broker: Broker, start: Start
) -> None:
    def hold_stream(pipe: Connection) -> None:
        stream = shmq.connect(namespace).stream("s")
        stream.append(b"1")
        pipe.send("attached")
        pipe.recv()
        stream.append(b"2")

    start(_make_stream, namespace).ends()
    child = start(hold_stream)
    child.hear()

    run_script(
        REFUSED + 'refused(lambda: broker.stream("s").append(b"x"))',
        namespace,
        time_namespace(),
        before=TIME,
    )

    child.tell()
    child.ends()
    assert [record.body for record in broker.stream("s").read(0, 0)] == [b"1", b"2"]
    broker.delete_stream("s")


def _make_stream(_pipe: Connection, namespace: str) -> None:
    shmq.connect(namespace).create_stream("s", partitions=1)


#: A container that ends without a word: it holds a lease, and the queue's locks.
KILLED = """
import os, sys
import shmq
from tests.support.stopped import locks_of_queue
queue = shmq.connect(sys.argv[1]).create_queue("q", visibility_timeout=3600.0)
queue.put_many([b"1", b"2"])
assert queue.get().body == b"1"
queue.put(b"late", delay=3600.0)
for lock in locks_of_queue(sys.argv[1], "q").values():
    lock.take()
sys.stdout.write("done")
sys.stdout.flush()
os._exit(9)  # the first of a PID namespace is not killed by itself
"""


def killed(namespace: str, before: tuple[str, ...]) -> None:
    """Run the container, to its end."""
    done = subprocess.run(
        [*before, sys.executable, "-c", KILLED, namespace],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "done", done.stderr


@own_pids
def test_once_a_container_is_dead_the_next_one_goes_on_with_all_that_is_there(
    namespace: str, broker: Broker
) -> None:
    """A container was killed, and starts again on the same /dev/shm: here, on the host."""
    killed(namespace, PID)

    queue = broker.queue("q")

    assert sorted(drain(queue)) == [b"1", b"2"]
    assert queue.stats().recoveries == 1
    assert queue.stats().delayed == 1
    is_sound(queue)


@own_time
def test_deadlines_of_another_clock_are_not_taken_over_and_an_empty_namespace_is(
    namespace: str, broker: Broker
) -> None:
    killed(namespace, TIME)

    with pytest.raises(shmq.ForeignSegment, match=r"has the deadlines of.*remove /dev/shm/"):
        broker.queue("q")

    for file in files_of(namespace):
        if file != f"shmq@{namespace}":
            (SHM / file).unlink()
    queue = broker.create_queue("q")
    queue.put(b"1")
    assert drain(queue) == [b"1"]
