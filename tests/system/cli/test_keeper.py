"""``shmq keeper``: what is due is done without another process."""

from __future__ import annotations

import signal
import subprocess

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell, ended
from tests.support.waiting import eventually


def test_it_keeps_time_until_it_is_told_to_stop(shell: Shell, broker: shmq.Broker) -> None:
    """Only the dead-letter queue is looked at, which does not touch the other."""
    jobs = broker.create_queue("jobs", ttl=0.05)
    dead_letter_queue = broker.queue("jobs.dlq")
    jobs.put("x")
    jobs.close()
    assert dead_letter_queue.qsize() == 0

    running = shell.start("keeper", "--interval", "10ms", stdout=subprocess.PIPE)
    eventually(lambda: dead_letter_queue.qsize() == 1, "the message is a dead letter")
    running.send_signal(signal.SIGTERM)

    ran = ended(running)
    assert (ran.code, ran.out) == (0, b"")
    assert f"keeping namespace '{shell.namespace}'" in ran.error


@pytest.mark.prove
def test_it_keeps_queues_that_come_and_go(shell: Shell, broker: shmq.Broker) -> None:
    running = shell.start("keeper", stdout=subprocess.PIPE)
    queue = broker.create_queue("young", dead_letter=None)
    eventually(lambda: len(queue.attachments()) == 2, "the new queue was found")
    broker.delete_queue("young")
    other = broker.create_queue("other", dead_letter=None)
    eventually(lambda: len(other.attachments()) == 2, "the keeper goes on")

    running.send_signal(signal.SIGINT)

    assert ended(running).code == 0
    assert len(other.attachments()) == 1


def test_it_can_do_what_is_due_once(shell: Shell, queue: shmq.Queue) -> None:
    ran = shell("keeper", "--once")

    assert (ran.out, ran.err) == (b"", b"")


@pytest.mark.parametrize("interval", ["0", "soon"])
def test_an_interval_that_is_none_is_wrong_usage(shell: Shell, interval: str) -> None:
    assert "--interval" in shell("keeper", "--interval", interval, code=Code.USAGE).error
