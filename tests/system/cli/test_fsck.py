"""``shmq fsck``: what is sound, what is not, and that looking changes nothing."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.client.local.queue import LocalQueue
from shmq.host.diagnose.probe_process import Crashed, ProbeTimeout, run_each
from tests.support.layout import place_of
from tests.support.own_shm import FILL_SHM, own_shm, with_own_shm
from tests.support.processes import run_script
from tests.support.shell import Shell, ended
from tests.support.stopped import locks_of_queue
from tests.support.waiting import eventually
from tests.system.cli.conftest import Quick

SHM = Path("/dev/shm")


def segment_of(shell: Shell, queue: str) -> Path:
    return SHM / f"shmq@{shell.namespace}@{queue}"


def overwrite(path: Path, place: slice, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place.start)
        file.write(data)


def states(shell: Shell, *arguments: str, code: Code) -> dict[str, str]:
    told = shell("fsck", "--json", *arguments, code=code).json
    assert all(bool(one["problems"]) == (one["state"] != "sound") for one in told)
    return {one["name"]: one["state"] for one in told}


@pytest.mark.prove
def test_queues_in_use_are_sound(shell: Shell, queue: shmq.Queue) -> None:
    queue.put_many(["a", "b", "c"], group="g")
    queue.put("later", delay=3600)
    held = queue.get()

    assert states(shell, code=Code.OK) == {"jobs": "sound", "jobs.dlq": "sound"}

    assert states(shell, "-q", "jobs", code=Code.OK) == {"jobs": "sound"}
    heading, *rows = shell("fsck", "jobs").lines
    assert heading.split() == ["queue", "state"]
    assert [row.split() for row in rows] == [["jobs", "sound"]]
    assert [one.pid for one in queue.attachments()] == [os.getpid()]
    held.ack()


@pytest.mark.prove
def test_a_queue_under_load_is_sound_and_comes_to_no_harm(
    shell: Shell, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("busy", max_deliveries=None)
    running = shell.start(
        *("stress", "-q", "busy", "--duration", "4s", "--kill", "--batch", "8", "--quiet"),
        stdout=subprocess.PIPE,
    )
    eventually(lambda: queue.stats().acked > 100, "messages pass through the queue")

    for _ in range(4):
        assert states(shell, "busy", code=Code.OK) == {"busy": "sound"}

    ran = ended(running)
    assert (ran.code, ran.err) == (0, b"")


def test_every_violation_is_told(shell: Shell, queue: shmq.Queue) -> None:
    assert isinstance(queue, LocalQueue)
    queue.put_many(["a", "b"])
    path = segment_of(shell, "jobs")
    whole = path.read_bytes()
    overwrite(path, place_of("visible"), (7).to_bytes(4, "little"))
    overwrite(path, place_of("ready"), (5).to_bytes(4, "little"))

    (told,) = shell("fsck", "--json", "jobs", code=Code.SEGMENT).json

    assert told["state"] == "violated"
    assert told["problems"] == [
        "the count of visible messages is wrong",
        "the count of ready messages is wrong",
        "a message that could be served is not in the order",
    ]
    assert queue.violations() == told["problems"]
    for member in ("visible", "ready"):
        overwrite(path, place_of(member), whole[place_of(member)])
    assert states(shell, "jobs", code=Code.OK) == {"jobs": "sound"}


@pytest.mark.prove
@pytest.mark.debris
def test_what_cannot_be_used_is_told_apart_and_does_not_hide_the_rest(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    for name in ("cut", "newer", "spoilt", "open"):
        broker.create_queue(name, dead_letter=None).close()
    queue.close()
    os.truncate(segment_of(shell, "cut"), 100)
    overwrite(segment_of(shell, "newer"), place_of("published"), b"\xff\0\0\0")
    overwrite(segment_of(shell, "spoilt"), place_of("options.capacity"), b"\xff" * 4)
    segment_of(shell, "open").chmod(0o666)
    segment_of(shell, "folder").mkdir()
    segment_of(shell, "begun").touch(0o600)
    segment_of(shell, "no name").touch(0o600)
    before = {path.name: path.lstat().st_size for path in SHM.iterdir()}

    found = states(shell, code=Code.SEGMENT)

    assert found == {
        "begun": "unfinished",
        "cut": "damaged",
        "folder": "foreign",
        "jobs": "sound",
        "jobs.dlq": "sound",
        "newer": "incompatible",
        "no name": "damaged",
        "open": "foreign",
        "spoilt": "damaged",
    }
    for name in found:
        path = segment_of(shell, name)
        assert path.lstat().st_size == before[path.name], name
    segment_of(shell, "folder").rmdir()
    assert stat.S_IMODE(segment_of(shell, "open").stat().st_mode) == 0o666


@pytest.mark.prove
@pytest.mark.debris
def test_a_lock_that_is_held_for_ever_does_not_hold_up_the_check(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    stuck = broker.create_queue("stuck", dead_letter=None)  # its process may be inside
    locks_of_queue(shell.namespace, "stuck")["gets"].take()

    found = states(shell, "stuck", "jobs", "--timeout", "300ms", code=Code.SEGMENT)

    assert found == {"stuck": "stuck", "jobs": "sound"}
    stuck.close()


def test_a_semaphore_that_others_may_touch_is_a_problem(quick: Quick, queue: shmq.Queue) -> None:
    assert isinstance(queue, LocalQueue)
    path = SHM / f"sem.shmq@{quick.namespace}@{queue.segment.queue_id:016x}.not_full"
    path.chmod(0o666)

    (told,) = quick("fsck", "jobs", "--json", code=Code.SEGMENT).json

    assert "0666" in told["problems"][0]
    assert "chmod 600" in told["problems"][0]


@pytest.mark.prove
def test_a_queue_that_is_named_and_not_there_has_an_exit_code_of_its_own(
    shell: Shell, queue: shmq.Queue
) -> None:
    assert states(shell, "jobs", "nowhere", code=Code.NO_QUEUE) == {
        "jobs": "sound",
        "nowhere": "missing",
    }


def test_a_namespace_without_queues_is_sound(quick: Quick) -> None:
    assert "has no queues" in quick("fsck").error
    assert quick("fsck", "--json").json == []


def test_work_apart_tells_what_it_found_or_how_it_ended() -> None:
    children = psutil.Process().children()

    work: list[Callable[[], Any]] = [
        lambda: {"a": [1, 2]},
        lambda: os.kill(os.getpid(), signal.SIGBUS),
        lambda: 1 // 0,
        lambda: "x" * 1_000_000,
        lambda: 4,
    ]
    whole, killed, failed, large, last = run_each(lambda at: work[at](), range(len(work)), 60)
    (late,) = run_each(lambda _: signal.pause(), [0], 0.05)

    assert (whole, last, len(large)) == ({"a": [1, 2]}, 4, 1_000_000)
    assert isinstance(killed, Crashed)
    assert "SIGBUS" in str(killed)
    assert isinstance(failed, Crashed)
    assert "ZeroDivisionError" in str(failed)
    assert isinstance(late, ProbeTimeout)
    assert "0.05 s" in str(late)
    assert psutil.Process().children() == children


def test_a_process_works_on_the_next_until_one_is_not_sound() -> None:
    def work(at: int) -> tuple[int, int]:
        return at, os.getpid()

    found = list(run_each(work, range(6), 60, is_sound=lambda result: result[0] not in {1, 4}))

    pids = [pid for _, pid in found]
    assert [at for at, _ in found] == list(range(6))
    assert pids[0] == pids[1] != pids[2]
    assert pids[2] == pids[3] == pids[4] != pids[5]


def test_a_check_that_is_left_leaves_no_process() -> None:
    children = psutil.Process().children()
    checks = run_each(lambda _: os.getpid(), range(3), 60)
    assert next(checks)
    checks.close()  # type: ignore[attr-defined]
    assert psutil.Process().children() == children


@pytest.mark.debris
def test_a_queue_between_damaged_ones_is_checked(broker: shmq.Broker, quick: Quick) -> None:
    with broker.create_queue("b", dead_letter=None) as queue:
        queue.put("x")
    broker.create_queue("d", dead_letter=None).close()
    broker.create_queue("a", dead_letter=None).close()
    Path(f"/dev/shm/shmq@{broker.namespace}@a").write_bytes(b"no segment" * 9)
    os.truncate(f"/dev/shm/shmq@{broker.namespace}@d", 4096)

    states = {one["name"]: one["state"] for one in quick("fsck", "--json", code=9).json}

    assert states["b"] == "sound"
    assert "sound" not in (states["a"], states["d"])
    found = quick("doctor", "--json", code=10).json["found"]
    assert {one["name"] for one in found if one["kind"] == "queue"} == {"a", "d"}


@own_shm
def test_without_space_for_the_check_nothing_is_called_damaged() -> None:
    code = """
import json, os, subprocess, sys
import shmq

with shmq.connect("full") as broker:
    broker.create_queue("q").put("kept")
    broker.ensure_table("t").set("k", 1)
"""
    code += FILL_SHM
    code += """
shown = subprocess.run(
    [sys.executable, "-m", "shmq", "-n", "full", "fsck", "--json"], capture_output=True, text=True
)
states = {one["name"]: one["state"] for one in json.loads(shown.stdout)}
assert "unchecked" in states.values() and set(states.values()) <= {"sound", "unchecked"}, shown
assert shown.returncode == 8, shown
os.unlink("/dev/shm/filler")
with shmq.connect("full") as broker:
    assert broker.queue("q").get().body == "kept"
"""
    run_script(code, before=with_own_shm("4m"))


@pytest.mark.parametrize("command", ["fsck", "doctor"])
def test_no_time_for_a_check_is_wrong_usage(shell: Shell, command: str) -> None:
    assert "--timeout" in shell(command, "--timeout", "0", code=Code.USAGE).error
