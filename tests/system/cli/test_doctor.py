"""``shmq doctor``: finds what the dead have left, and never touches what lives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.client.local.queue import LocalQueue
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import make_semaphores
from tests.support.own_shm import UNSHARE, own_shm
from tests.support.shell import Shell, ended
from tests.system.cli.conftest import Quick

SHM = Path("/dev/shm")

#: What each process that is to die begins with.
BEGIN = """
import os, signal, sys
import posix_ipc
import shmq
from shmq.host.namespace import namespace as registry
from shmq.host.namespace.namespace import Namespace

def die(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

namespace = sys.argv[1]
broker = shmq.connect(namespace)
"""


@pytest.fixture
def dies(shell: Shell) -> Callable[[str], None]:
    """Runs a script that kills itself by SIGKILL."""

    def run(script: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", BEGIN + script, shell.namespace],
            env=shell.environment(),
            check=False,
            timeout=60,
        )
        assert done.returncode == -9

    return run


def files(shell: Shell) -> set[str]:
    return {name for name in os.listdir(SHM) if shell.namespace in name}


def found(shell: Shell, *flags: str, code: Code = Code.OK) -> list[tuple[str, str, bool]]:
    told = shell("doctor", "--json", *flags, code=code).json
    return [(one["kind"], one["name"], one["fixed"]) for one in told["found"]]


def is_found_and_fixed(shell: Shell, kind: str, name: str) -> None:
    """Fail unless it is told, left alone, then removed, and then not there."""
    before = files(shell)
    assert found(shell, code=Code.WRONG) == [(kind, name, False)]
    assert files(shell) == before
    assert found(shell, "--fix") == [(kind, name, True)]
    assert found(shell) == []


def test_a_namespace_in_use_is_healthy(quick: Quick, queue: shmq.Queue) -> None:
    queue.put_many(["a", "b"])
    held = queue.get()

    told = quick("doctor", "--fix", "--json").json

    assert (told["namespaces"], told["found"]) == ([quick.namespace], [])
    assert [(one["queue"], one["ours"], one["mode"]) for one in told["segments"]] == [
        ("jobs", True, "0600"),
        ("jobs.dlq", True, "0600"),
    ]
    environment = {one["name"]: one["value"] for one in told["environment"]}
    assert environment["python"] == sys.version.split()[0]
    assert environment["/dev/shm bytes"] > environment["/dev/shm bytes free"] > 0
    assert "nothing is left behind in 1 namespace" in quick("doctor").text
    held.ack()


def test_a_queue_whose_maker_died_is_removed(
    shell: Shell, queue: shmq.Queue, dies: Callable[[str], None]
) -> None:
    dies("registry.make_semaphores = die; broker.create_queue('young', dead_letter=None)")

    is_found_and_fixed(shell, "segment", "young")


@pytest.mark.prove
def test_a_queue_whose_deleter_died_is_removed(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue, dies: Callable[[str], None]
) -> None:
    broker.create_queue("old", dead_letter=None).close()
    dies("Namespace.remove_segment = die; broker.delete_queue('old')")

    is_found_and_fixed(shell, "segment", "old")
    assert not any("old" in name for name in files(shell))


@pytest.mark.prove
def test_semaphores_without_a_queue_are_removed(shell: Shell, queue: shmq.Queue) -> None:
    make_semaphores(shell.namespace, 0xABC)
    stem = f"sem.shmq@{shell.namespace}@0000000000000abc"

    assert found(shell, "--fix") == [
        ("semaphore", f"{stem}.not_empty", True),
        ("semaphore", f"{stem}.not_full", True),
    ]
    queue.put("the semaphores of a queue are left to it")
    assert shell("fsck").code == Code.OK


def test_a_wakeup_is_removed_when_its_process_is_dead(
    shell: Shell, queue: shmq.Queue, dies: Callable[[str], None]
) -> None:
    number = Namespace.of(shell.namespace).processes.own_number()
    mine = f"bell.shmq@{shell.namespace}@{number:x}.0"
    os.mkfifo(SHM / mine, 0o600)
    dies(
        "number = Namespace.of(namespace).processes.own_number()\n"
        "os.mkfifo(f'/dev/shm/bell.shmq@{namespace}@{number:x}.7', 0o600)\n"
        "die()"
    )

    ((kind, name, _),) = found(shell, code=Code.WRONG)

    assert (kind, name.rpartition(".")[2]) == ("bell", "7")
    is_found_and_fixed(shell, kind, name)
    assert mine in files(shell)
    (SHM / mine).unlink()


#: What comes after BEGIN where queues of shmq.mp are used.
ANONYMOUS = """
os.environ["SHMQ_MP_NAMESPACE"] = namespace
import shmq.mp
queue = shmq.mp.JoinableQueue()
queue.put("x")
queue._store.wakeups()
"""


@pytest.mark.prove
def test_an_unused_anonymous_queue_is_removed(
    shell: Shell, queue: shmq.Queue, dies: Callable[[str], None]
) -> None:
    before = files(shell)
    dies(f"{ANONYMOUS}\ndie()")
    left = files(shell)
    (words,) = (name for name in left if name.startswith("mp."))
    name = words.rpartition("@")[2]

    told = found(shell, code=Code.WRONG)
    assert told[0] == ("anonymous", name, False)
    assert {(kind, who) for kind, who, _ in told[1:]} == {
        ("attachment", name),
        ("attachment", f"{name}.done"),
    }
    assert files(shell) == left
    assert found(shell, "--fix") == [("anonymous", name, True)]

    assert files(shell) == before
    assert found(shell) == []


@pytest.mark.prove
def test_the_words_alone_of_an_anonymous_queue_are_removed(
    shell: Shell, queue: shmq.Queue, dies: Callable[[str], None]
) -> None:
    """Its maker died before there was a queue, or its last holder when it was gone."""
    dies(
        f"{ANONYMOUS}\nbroker.delete_queue(queue._store.name)\n"
        f"broker.delete_queue(f'{{queue._store.name}}.done'); die()"
    )
    (words,) = (name for name in files(shell) if name.startswith("mp."))

    is_found_and_fixed(shell, "anonymous", words.rpartition("@")[2])


@pytest.mark.prove
def test_an_anonymous_queue_in_use_is_left_alone(shell: Shell) -> None:
    """Its maker was killed; a child has the handle."""
    script = f"{BEGIN}{ANONYMOUS}\nif os.fork(): die()\nos.write(1, b'x'); sys.stdin.read()"
    maker = subprocess.Popen(
        [sys.executable, "-c", script, shell.namespace],
        env=shell.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert maker.stdout is not None
    assert maker.stdout.read(1) == b"x"
    assert maker.wait() == -9
    before = files(shell)

    told = found(shell, "--fix")

    assert {kind for kind, _, _ in told} == {"attachment"}  # the maker's
    assert files(shell) == before
    maker.communicate()  # the child ends, and takes the queue along
    assert not any(name.startswith("mp.") for name in files(shell))


def test_what_a_dead_process_held_is_returned(
    shell: Shell, queue: shmq.Queue, dies: Callable[[str], None]
) -> None:
    queue.put("x")
    held = queue.get()
    queue.put("y")
    dies("message = broker.queue('jobs').get(); die()")

    is_found_and_fixed(shell, "attachment", "jobs")

    assert (queue.stats().depth, queue.stats().in_flight) == (1, 1)
    held.ack()


@pytest.mark.prove
def test_the_copy_of_a_dead_mover_is_published(
    shell: Shell, queue: shmq.Queue, dies: Callable[[str], None]
) -> None:
    """Its mover died when the message was gone from the one queue, not yet in the other."""
    assert isinstance(queue, LocalQueue)
    dies(
        "queue = broker.queue('jobs'); other = broker.create_queue('other')\n"
        "queue.transfer.stage_copy(b'moved', b'', 0, 1, None, None, other.segment.queue_id, 99)\n"
        "die()"
    )
    number = next(n for _, n, pid, *_ in queue.attached() if pid != os.getpid())
    for at, owner, *_ in queue.attached():
        if owner == number:
            queue.reclaim(at, owner)

    told = found(shell, code=Code.WRONG)
    assert ("copy", "jobs", False) in told
    assert all(fixed for _, _, fixed in found(shell, "--fix"))

    assert queue.get(timeout=0).body == b"moved"
    assert found(shell) == []


@pytest.mark.prove
def test_the_file_of_an_unused_namespace_is_removed(shell: Shell) -> None:
    path = SHM / f"shmq@{shell.namespace}"
    path.touch(0o600)
    os.utime(path, (time.time() + 60,) * 2)
    assert found(shell) == []  # its maker may be about to lock it
    os.utime(path, (0, 0))

    is_found_and_fixed(shell, "namespace", shell.namespace)

    assert files(shell) == set()


@pytest.mark.prove
def test_semaphores_alone_are_removed_and_nothing_else_is_made(shell: Shell) -> None:
    make_semaphores(shell.namespace, 0xABC)

    assert len(found(shell, code=Code.WRONG)) == 2
    assert len(files(shell)) == 2
    assert len(found(shell, "--fix")) == 2
    assert files(shell) == set()


@pytest.mark.prove
@pytest.mark.debris
def test_what_it_does_not_understand_is_told_and_left(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    broker.create_queue("cut", dead_letter=None).close()
    (SHM / f"sem.shmq@{shell.namespace}@what").touch(0o600)
    (SHM / f"mp.shmq@{shell.namespace}@what").touch(0o600)
    os.truncate(SHM / f"shmq@{shell.namespace}@cut", 100)
    make_semaphores(shell.namespace, 0xABC)  # they might be those of the damaged queue
    before = files(shell)

    told = found(shell, "--fix", code=Code.WRONG)

    assert told == [
        ("file", f"mp.shmq@{shell.namespace}@what", False),
        ("file", f"sem.shmq@{shell.namespace}@what", False),
        ("queue", "cut", False),
    ]
    assert files(shell) == before
    assert "shmq delete" in shell("doctor", code=Code.WRONG).error


@pytest.mark.prove
@own_shm
def test_without_a_namespace_it_looks_at_all(shell: Shell) -> None:
    doctor = f"{sys.executable} -m shmq doctor"
    line = (
        f"mount -t tmpfs tmpfs /dev/shm && {sys.executable} -m shmq -n one create -q a >&2 && "
        f"touch /dev/shm/sem.shmq@two@00000000000000ff.not_full; chmod 600 /dev/shm/sem*;"
        f"{doctor}; echo $?; {doctor} --fix --json; {doctor} | tail -n 1; ls /dev/shm"
    )
    environment = shell.environment()
    del environment["SHMQ_NAMESPACE"]

    done = subprocess.run(
        [*UNSHARE, line], env=environment, capture_output=True, text=True, timeout=60, check=True
    )

    lines = done.stdout.splitlines()
    assert str(int(Code.WRONG)) in lines
    assert '"namespaces": ["one", "two"]' in done.stdout
    assert "nothing is left behind in 1 namespace" in lines
    assert not any(
        "two" in line for line in lines[lines.index("nothing is left behind in 1 namespace") :]
    )


WORK = (
    BEGIN
    + """
import itertools
sys.stdout.write("at work\\n")
sys.stdout.flush()
for turn in itertools.count():
    if os.path.exists(sys.argv[2]):
        break
    name = f"q{turn % 3}-{os.getpid()}"
    with broker.create_queue(name, capacity=100, max_deliveries=None) as queue:
        shared = broker.ensure_queue("shared")
        for number in range(20):
            queue.put(str(number))
            shared.put(str(number))
        with queue.get() as message:
            assert message.body == "0", message.body
        message = queue.get()
        assert [m.body for m in queue.get_many(64, block=False)] == [str(n) for n in range(2, 20)]
        message.ack()
        shared.ack_many(shared.get_many(20, block=False))
        shared.close()
    broker.delete_queue(name)
    with shmq.connect(namespace + "-brief") as brief:
        brief.ensure_queue(f"x{os.getpid()}").put("x")
        brief.delete_queue(f"x{os.getpid()}")
broker.close()
print(turn)
"""
)


@pytest.mark.prove
def test_nothing_that_lives_is_touched(shell: Shell, broker: shmq.Broker, tmp_path: Path) -> None:
    """The doctor makes its rounds while processes make, use and delete queues."""
    broker.create_queue("shared", max_deliveries=None)
    end = tmp_path / "end"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, shell.namespace, str(end)],
            env=shell.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"at work\n"
        for _ in range(4):
            for namespace in (shell.namespace, f"{shell.namespace}-brief"):
                told = shell("-n", namespace, "doctor", "--fix", "--json").json
                assert told["found"] == []
    finally:
        end.touch()
        said = [ended(worker) for worker in workers]
    assert [(one.code, one.err) for one in said] == [(0, b"")] * 3
    assert all(int(one.out) > 0 for one in said)
    # Two that left at the same moment each took the other for a user of the namespace.
    shmq.connect(f"{shell.namespace}-brief").close()
