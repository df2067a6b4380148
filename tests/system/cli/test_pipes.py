"""``shmq consume`` into what stops taking: nothing is acknowledged that was not taken."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell, ended
from tests.support.waiting import PATIENCE, eventually

BODIES = [f"message {number}" for number in range(100)]


@pytest.fixture(autouse=True)
def filled(queue: shmq.Queue) -> None:
    queue.put_many(BODIES)


def left(queue: shmq.Queue) -> list[Any]:
    eventually(lambda: queue.stats().in_flight == 0, "nothing is leased")
    return [message.body for message in queue.peek(1000)]


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("flags", ["--ahead 1", "--ahead 1 --follow"])
def test_what_head_did_not_print_is_still_in_the_queue(
    shell: Shell, queue: shmq.Queue, count: int, flags: str
) -> None:
    ran = shell.pipeline(f"set -o pipefail; shmq consume -q jobs {flags} | head -{count}")

    assert (ran.code, ran.err) == (0, b"")
    assert ran.lines == BODIES[:count]
    assert left(queue) == BODIES[count:]


@pytest.mark.parametrize("command", ["--help", "--version", "stats --help", "list"])
def test_a_reader_that_reads_nothing_is_no_failure(shell: Shell, command: str) -> None:
    ran = shell.pipeline(f"set -o pipefail; (sleep 0.01; shmq {command}) | true")

    assert (ran.code, ran.err) == (0, b"")


def test_a_reader_that_dies_takes_only_what_it_read(shell: Shell, queue: shmq.Queue) -> None:
    ran = shell.pipeline(
        "shmq consume -q jobs | { read -r line; read -r line; echo $line; kill -9 $BASHPID; }"
    )

    assert ran.lines == [BODIES[1]]
    assert left(queue) == BODIES[2:]


def test_a_slow_readers_messages_stay_unacknowledged_until_it_reads_them(
    shell: Shell, queue: shmq.Queue
) -> None:
    ours, theirs = os.pipe()
    consumer = shell.start("consume", "-q", "jobs", "--follow", stdout=theirs)
    os.close(theirs)
    eventually(lambda: queue.stats().in_flight > 1, "it writes ahead of its reader")

    assert os.read(ours, len(BODIES[0]) + 1).decode() == BODIES[0] + "\n"
    eventually(lambda: queue.stats().acked == 1, "what was read is acknowledged")
    os.close(ours)

    ran = ended(consumer)
    assert (ran.code, ran.err) == (0, b"")
    assert left(queue) == BODIES[1:]


@pytest.mark.prove
def test_a_reader_that_reads_all_there_is_can_be_kept_to_one_message(
    shell: Shell, queue: shmq.Queue
) -> None:
    ran = shell.pipeline("set -o pipefail; shmq consume -q jobs --ahead 1 | (sleep 1.5; head -1)")

    assert (ran.code, ran.lines) == (0, BODIES[:1])
    assert left(queue) == BODIES[1:]


@pytest.mark.prove
def test_the_lease_of_what_lies_unread_is_extended(shell: Shell, broker: shmq.Broker) -> None:
    queue = broker.create_queue("slow", visibility_timeout=4.0)
    queue.put("x")
    ours, theirs = os.pipe()
    consumer = shell.start("consume", "-q", "slow", "--follow", stdout=theirs)
    os.close(theirs)
    eventually(lambda: queue.stats().in_flight == 1, "the message is leased")

    with pytest.raises(shmq.Empty):
        queue.get(timeout=6.0)

    assert os.read(ours, 100) == b"x\n"
    eventually(lambda: queue.stats().acked == 1, "what was read is acknowledged")
    os.close(ours)
    assert ended(consumer).code == 0
    assert queue.stats().expired == 0


@pytest.mark.prove
def test_a_message_whose_lease_ran_out_unread_is_announced_to_come_again(
    shell: Shell, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("slow", visibility_timeout=1.0)
    queue.put("x")
    ours, theirs = os.pipe()
    consumer = shell.start("consume", "-q", "slow", "--follow", stdout=theirs)
    os.close(theirs)
    assert select.select([ours], [], [], PATIENCE)[0]
    consumer.send_signal(signal.SIGSTOP)
    message = queue.get(timeout=PATIENCE)

    consumer.send_signal(signal.SIGCONT)
    assert os.read(ours, 100) == b"x\n"
    os.close(ours)

    ran = ended(consumer)
    assert ran.code == 0
    assert ran.error.startswith("1 message written after the lease had expired will be delivered")
    message.ack()


@pytest.mark.prove
def test_what_is_all_written_at_the_end_belongs_to_the_pipe(
    shell: Shell, queue: shmq.Queue
) -> None:
    consumer = shell.start("consume", "-q", "jobs", "-n", "3", stdout=subprocess.PIPE)
    assert consumer.wait() == 0

    assert ended(consumer).lines == BODIES[:3]
    assert left(queue) == BODIES[3:]


def test_a_message_larger_than_the_pipe_is_returned_when_its_reader_leaves(
    shell: Shell, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("large")
    queue.put("x" * 1_000_000)

    ran = shell.pipeline("shmq consume -q large | head -c 70000 | wc -c")

    assert ran.text.split() == ["70000"]
    assert [len(body) for body in left(queue)] == [1_000_000]


def test_a_stuck_reader_does_not_keep_a_consumer_from_stopping(
    shell: Shell, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("large")
    queue.put("x" * 1_000_000)
    ours, theirs = os.pipe()
    consumer = shell.start("consume", "-q", "large", "--follow", stdout=theirs)
    os.close(theirs)
    assert os.read(ours, 1) == b"x"

    consumer.send_signal(signal.SIGTERM)

    assert ended(consumer).code == 0
    os.close(ours)
    assert [len(body) for body in left(queue)] == [1_000_000]


def test_a_reader_that_left_while_nothing_came_ends_the_consumer(
    shell: Shell, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("quiet")
    ours, theirs = os.pipe()
    consumer = shell.start("consume", "-q", "quiet", "--follow", stdout=theirs)
    os.close(theirs)
    eventually(lambda: queue.stats().waiting_get > 0, "the consumer waits")

    os.close(ours)

    assert ended(consumer).code == 0


def test_a_full_disk_is_one_line_of_error_and_nothing_is_lost(
    shell: Shell, queue: shmq.Queue
) -> None:
    ran = shell.pipeline("shmq consume -q jobs > /dev/full")

    assert ran.code == Code.REFUSED
    assert "No space left" in ran.error
    assert "back in the queue" in ran.error
    assert left(queue) == BODIES


def test_what_a_short_file_took_is_acknowledged_and_the_rest_is_not(
    shell: Shell, queue: shmq.Queue, tmp_path: Path
) -> None:
    path = tmp_path / "short"

    ran = shell.pipeline(f"trap '' XFSZ; ulimit -f 1; shmq consume -q jobs > {path}")

    assert ran.code == Code.REFUSED
    assert "too large" in ran.error
    whole = path.read_text().count("\n")
    assert 0 < whole < len(BODIES)
    assert left(queue) == BODIES[whole:]


def test_a_closed_standard_output_is_refused_before_anything_is_taken(
    shell: Shell, queue: shmq.Queue
) -> None:
    ran = shell.pipeline("shmq consume -q jobs >&-")

    assert ran.code == Code.REFUSED
    assert "standard output is closed" in ran.error
    assert left(queue) == BODIES
    assert queue.stats().redelivered == 0


@pytest.mark.parametrize(
    "command",
    ["stream read log", "stream read log --json", "stream tail log", "subscribe log --timeout 0s"],
)
def test_a_closed_standard_output_is_refused_before_records_are_read(
    shell: Shell, broker: shmq.Broker, command: str
) -> None:
    broker.create_stream("log", partitions=1).append(b"x")
    ran = shell.pipeline(f"shmq {command} >&-")

    assert ran.code == Code.REFUSED
    assert "standard output is closed, so nothing was read" in ran.error


@pytest.mark.parametrize("command", ["list", "top --once", "peek -q jobs", "dmsq dump"])
def test_a_closed_standard_output_hides_what_is_shown(shell: Shell, command: str) -> None:
    assert b"internal error" not in shell.pipeline(f"shmq {command} >&-").err


@pytest.mark.parametrize("command", ["list", "stats -q jobs --json", "peek -q jobs -n 100 --json"])
def test_a_reader_of_a_table_may_leave(shell: Shell, command: str) -> None:
    ran = shell.pipeline(f"set -o pipefail; shmq {command} | true")

    assert (ran.code, ran.err) == (0, b"")


@pytest.mark.prove
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_do_not_hurt_the_queue(
    shell: Shell, queue: shmq.Queue, closed: str
) -> None:
    assert shell.pipeline(f"shmq list {closed}; shmq produce -q none -m x {closed}").code == 4
    assert shell.pipeline(f"shmq produce -q jobs -m more {closed}").code == 0
    assert left(queue) == [*BODIES, "more"]
