"""Every command ends beside a process that is stopped inside a critical section."""

from __future__ import annotations

import pytest

import shmq
from tests.support.shell import Shell
from tests.support.stopped import lock_of_partition, locks_of_queue

#: What looks at all queues, and what each says of those that it can look at.
OF_ALL = {
    "list": ("list",),
    "stats": ("stats",),
    "top": ("top", "--once"),
    "fsck": ("fsck",),
    "doctor": ("doctor",),
}
#: What uses the one queue that is locked.
OF_ONE = {
    "who": ("who", "-q", "jobs"),
    "peek": ("peek", "-q", "jobs"),
    "stats": ("stats", "-q", "jobs"),
    "purge": ("purge", "-q", "jobs", "--yes"),
    "delete": ("delete", "-q", "jobs", "--yes"),
    "consume": ("consume", "-q", "jobs", "--timeout", "0.2s"),
}


@pytest.mark.parametrize("command", OF_ALL)
def test_a_locked_queue_is_told_and_the_others_are_shown(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue, command: str
) -> None:
    broker.create_queue("other", dead_letter=None).put(b"1")
    with locks_of_queue(shell.namespace, "jobs")["gets"].held_by_stopped() as holder:
        ran = shell(*OF_ALL[command], code=None)
    told = (ran.out + ran.err).decode()
    assert f"held by PID {holder.pid} (stopped)" in told
    assert "Traceback" not in told
    assert any("other" in line and "PID" not in line for line in ran.lines)


@pytest.mark.parametrize("command", OF_ONE)
def test_a_command_for_the_locked_queue_ends(shell: Shell, queue: shmq.Queue, command: str) -> None:
    with locks_of_queue(shell.namespace, "jobs")["gets"].held_by_stopped() as holder:
        ran = shell(*OF_ONE[command], code=None)
    assert ran.code != 0
    assert f"held by PID {holder.pid} (stopped)" in ran.error


def test_a_stream_with_a_stopped_appender_is_listed(shell: Shell, broker: shmq.Broker) -> None:
    broker.create_stream("s", partitions=1).append(b"1")
    with lock_of_partition(shell.namespace, "s").held_by_stopped():
        assert "s" in shell("stream", "list").text
