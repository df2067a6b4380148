"""What a container does to /dev/shm: read-only, small, or one of its own.

Each script has a /dev/shm of its own, in a mount namespace, as in a container.
"""

from __future__ import annotations

import pytest

from shmq import Queue

from .tools import drain, run_script, why_not

UNSHARE = ("unshare", "--map-root-user", "--mount", "sh", "-c")

WHY_NOT = why_not(*UNSHARE, "mount -t tmpfs -o size=64k tmpfs /dev/shm")

own_shm = pytest.mark.skipif(bool(WHY_NOT), reason=f"no /dev/shm can be mounted here: {WHY_NOT}")

MOUNT = 'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$0" "$@"'


def run_contained(code: str, size: str = "64m") -> str:
    """Run a script with a /dev/shm of its own, of that size."""
    return run_script(code, before=(*UNSHARE, MOUNT.format(size=size)))


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
