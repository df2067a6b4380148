"""What a container does to /dev/shm: read-only, small, one of its own, or one for several.

A script that has a /dev/shm of its own has it in a mount namespace, as in a container.
"""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.connection import Connection

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.layout import place_of
from tests.support.processes import (
    PATIENCE,
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

UNSHARE = ("unshare", "--map-root-user", "--mount", "sh", "-c")

WHY_NOT = why_not(*UNSHARE, "mount -t tmpfs -o size=64k tmpfs /dev/shm")

own_shm = pytest.mark.skipif(bool(WHY_NOT), reason=f"no /dev/shm can be mounted here: {WHY_NOT}")

MOUNT = 'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$0" "$@"'


def run_contained(code: str, size: str = "64m") -> str:
    """Run a script with a /dev/shm of its own, of that size."""
    return run_script(code, before=(*UNSHARE, MOUNT.format(size=size)))


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


# ---- one /dev/shm for several PID or time namespaces ----

PID = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")
TIME = ("unshare", "--map-root-user", "--time", "--fork", "--monotonic", "100000")

elsewhere = pytest.mark.parametrize(
    "before",
    [
        pytest.param(
            before,
            marks=pytest.mark.skipif(
                bool(why_not(*before, "true")), reason=f"not here: {why_not(*before, 'true')}"
            ),
            id=kind,
        )
        for kind, before in {"PID": PID, "time": TIME}.items()
    ],
)

#: What a script begins with that is elsewhere: what it tries is refused.
REFUSED = """
import os, re, sys
import shmq
broker = shmq.connect(sys.argv[1])

def refused(call):
    try:
        call()
    except shmq.ForeignSegment as error:
        text = str(error)
    else:
        raise AssertionError("it was not refused")
    for kind in ("pid", "time"):
        here = os.stat(f"/proc/self/ns/{kind}").st_ino
        there = sys.argv[2 if kind == "pid" else 3]
        assert str(here) in text and there in text, text
    assert "--pid=container:" in text and "shareProcessNamespace" in text, text
    assert "TCP" in text, text
"""


def inodes() -> tuple[int, int]:
    """The numbers of this process's PID and time namespaces."""
    pid, time = (os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("pid", "time"))
    return pid, time


@elsewhere
def test_a_process_of_another_namespace_is_refused_with_both_numbers_and_what_to_do(
    namespace: str, broker: Broker, before: tuple[str, ...]
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
assert "PID namespace" in broker.list_queues()[0].problem
"""
    run_script(REFUSED + code, namespace, *inodes(), before=before)

    message.ack()
    is_empty(queue)


@elsewhere
def test_a_process_that_has_but_a_stream_keeps_those_of_another_namespace_out(
    namespace: str, broker: Broker, before: tuple[str, ...], start: Start
) -> None:
    def hold_stream(pipe: Connection) -> None:
        stream = shmq.connect(namespace).stream("s")
        pipe.send("attached")
        pipe.recv()
        stream.append(b"1")

    start(_make_stream, namespace).ends()
    child = start(hold_stream)
    child.hear()

    run_script(REFUSED + 'refused(lambda: broker.stream("s"))', namespace, *inodes(), before=before)

    child.tell()
    child.ends()
    assert [record.body for record in broker.stream("s").read(0, 0)] == [b"1"]
    broker.delete_stream("s")


def _make_stream(_pipe: Connection, namespace: str) -> None:
    shmq.connect(namespace).create_stream("s", partitions=1)


#: A container that ends without a word: it holds a lease, and the queue's locks.
KILLED = f"""
import ctypes, mmap, os, sys
import shmq
queue = shmq.connect(sys.argv[1]).create_queue("q", visibility_timeout=3600.0)
queue.put_many([b"1", b"2"])
assert queue.get().body == b"1"
queue.put(b"late", delay=3600.0)
with open(f"/dev/shm/shmq@{{sys.argv[1]}}@q", "r+b") as file:
    segment = mmap.mmap(file.fileno(), 4096)
libc = ctypes.CDLL(None)
for place in {[place_of(lock).start for lock in ("lock", "put_lock")]}:
    assert not libc.pthread_mutex_lock(ctypes.byref(ctypes.c_char.from_buffer(segment, place)))
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


@pytest.mark.prove
@pytest.mark.skipif(bool(why_not(*PID, "true")), reason=f"not here: {why_not(*PID, 'true')}")
def test_once_a_pid_namespace_is_dead_the_next_one_goes_on_with_all_that_is_there(
    namespace: str, broker: Broker
) -> None:
    """A container was killed, and starts again on the same /dev/shm: here, on the host."""
    killed(namespace, PID)

    queue = broker.queue("q")

    assert sorted(drain(queue)) == [b"1", b"2"]
    assert queue.stats().recoveries == 1
    assert queue.stats().delayed == 1
    is_sound(queue)
    again = f'{REFUSED}\nrefused(lambda: broker.queue("q"))'
    run_script(again, namespace, *inodes(), before=PID)


@pytest.mark.skipif(bool(why_not(*TIME, "true")), reason=f"not here: {why_not(*TIME, 'true')}")
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
