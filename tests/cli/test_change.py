"""``shmq delete``, ``purge`` and ``redrive``."""

from __future__ import annotations

import os
import signal
import subprocess

import psutil
import pytest

import shmq
from shmq.cli.failure import Code
from tests.cli.tools import Shell, ended, eventually, read_until, terminal


def names(broker: shmq.Broker) -> list[str]:
    return [queue.name for queue in broker.list_queues()]


def test_delete_takes_the_queue_and_leaves_its_dead_letters(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    queue.put("x")

    assert shell("delete", "-q", "jobs", "--yes").text == "queue 'jobs' is deleted\n"
    assert names(broker) == ["jobs.dlq"]
    assert shell("delete", "-q", "jobs.dlq", "-y", "--json").json == {
        "namespace": shell.namespace,
        "deleted": "jobs.dlq",
    }
    assert names(broker) == []


def test_purge_removes_what_is_visible_or_delayed(shell: Shell, queue: shmq.Queue) -> None:
    queue.put_many(["a", "b", "c"])
    queue.put("d", delay=3600)
    lease = queue.get()

    assert shell("purge", "-q", "jobs", "--yes", "--json").json == {"queue": "jobs", "purged": 3}

    assert (queue.qsize(), queue.stats().in_flight) == (0, 1)
    lease.ack()
    assert shell("purge", "-q", "jobs", "--yes").text == "0 messages removed from queue 'jobs'\n"


@pytest.mark.parametrize("command", ["delete", "purge"])
def test_what_cannot_be_undone_needs_a_yes_where_nobody_can_be_asked(
    shell: Shell, queue: shmq.Queue, command: str
) -> None:
    queue.put("x")

    ran = shell(command, "-q", "jobs", stdin=b"y\n", code=Code.USAGE)

    assert "--yes" in ran.error
    assert queue.qsize() == 1


@pytest.mark.parametrize(
    ("answer", "code", "remaining"), [(b"y\n", Code.OK, 0), (b"n\n", Code.REFUSED, 3)]
)
@pytest.mark.parametrize("command", ["delete", "purge"])
def test_a_terminal_is_asked_and_told_how_much_is_lost(
    shell: Shell,
    broker: shmq.Broker,
    queue: shmq.Queue,
    command: str,
    answer: bytes,
    code: int,
    remaining: int,
) -> None:
    queue.put_many(["a", "b", "c"])

    with terminal() as (ours, theirs):
        asking = shell.start(
            command, "-q", "jobs", stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
        )
        assert b"3 messages" in read_until(ours, b"[y/N]")
        os.write(ours, answer)
        ran = ended(asking)
        if code:
            assert b"nothing was changed" in read_until(ours, b"changed")

    assert ran.code == code
    left = {queue.name: queue.depth for queue in broker.list_queues()}
    assert left.get("jobs", 0) == remaining


def test_ctrl_c_at_the_question_changes_nothing(
    shell: Shell, broker: shmq.Broker, queue: shmq.Queue
) -> None:
    with terminal() as (ours, theirs):
        asking = shell.start(
            "delete", "-q", "jobs", stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
        )
        read_until(ours, b"[y/N]")
        process = psutil.Process(asking.pid)
        eventually(lambda: process.status() == psutil.STATUS_SLEEPING, "it waits for an answer")
        asking.send_signal(signal.SIGINT)
        ran = ended(asking)

    assert (ran.code, ran.out) == (Code.INTERRUPTED, b"")
    assert "jobs" in names(broker)


@pytest.mark.parametrize("command", ["delete", "purge"])
@pytest.mark.parametrize("flags", [[], ["--yes"]])
def test_a_missing_queue_is_missing_before_anyone_is_asked(
    shell: Shell, command: str, flags: list[str]
) -> None:
    assert "'nowhere'" in shell(command, "-q", "nowhere", *flags, code=Code.NO_QUEUE).error


@pytest.mark.parametrize("name", ["jobs", "jobs.dlq"])
def test_redrive_sends_dead_letters_back(shell: Shell, queue: shmq.Queue, name: str) -> None:
    queue.put_many(["a", "b", "c"])
    for message in queue.get_many(3):
        message.reject()

    assert shell("redrive", "-q", name, "-n", "1", "--json").json == {"queue": name, "redriven": 1}
    assert queue.qsize() == 1
    assert shell("redrive", "-q", name).text == "2 dead letters sent back\n"
    assert queue.qsize() == 3
    assert shell("redrive", "-q", name).text == "0 dead letters sent back\n"
