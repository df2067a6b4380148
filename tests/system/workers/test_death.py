"""Workers and supervisors that die: what they held, which processes go on, and which must not."""

from __future__ import annotations

import logging
import os
import random
import re
import resource
import signal
import threading
from concurrent.futures import wait

import pytest

import shmq
from shmq.workers.deaths import CurrentDelivery
from shmq.workers.plan import Plan
from shmq.workers.process import WorkerLoop
from shmq.workers.supervisor import Supervisor
from tests.conformance.tools import in_thread
from tests.support.ended_processes import runs
from tests.support.stopped import locks_of_queue
from tests.support.waiting import PATIENCE, eventually
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal, kill


@pytest.mark.parametrize(
    "operation",
    [
        *(pytest.param(operation, marks=pytest.mark.prove) for operation in ("exit 0", "exit 3")),
        pytest.param("signal SIGSEGV", marks=pytest.mark.prove),
        "signal SIGKILL",
    ],
)
def test_a_message_that_kills_its_process_is_a_dead_letter_in_the_end(
    broker: shmq.Broker, work: Work, journal: Journal, operation: str
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=3, visibility_timeout=3600)
    jobs.put([1, operation])
    jobs.put([2])
    workers = work()

    journal.until("end", 1)
    eventually(lambda: broker.queue("jobs.dlq").qsize() == 1, "a dead letter")

    (letter,) = broker.queue("jobs.dlq").peek()
    assert letter.dead is not None
    assert (letter.dead.reason, letter.dead.deliveries) == ("max_deliveries", 3)
    tries = [entry for entry in journal.entries("begin") if entry.number == 1]
    assert [entry.delivery for entry in tries] == [1, 2, 3]
    assert len({entry.pid for entry in tries}) == 3
    how = operation.replace("exit", "exit code").removeprefix("signal ")
    assert len(workers.said(rf"died, pid \d+: {how}")) == 3
    assert workers.stops() == 0


@pytest.mark.prove
@pytest.mark.parametrize("operation", ["wait", "stuck"])
def test_a_handler_that_hangs_is_ended_and_that_counts_as_a_delivery(
    broker: shmq.Broker, work: Work, journal: Journal, operation: str
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=2, visibility_timeout=3600)
    jobs.put([1, operation])
    jobs.put([2])
    workers = work("--timeout", "1.2")  # the second message takes less, on a busy machine too

    journal.until("end", 1)
    eventually(lambda: broker.queue("jobs.dlq").qsize() == 1, "a dead letter")

    assert sorted(journal.numbers("begin")) == [1, 1, 2]
    assert len(workers.said(r"Timeout \(0:00:01.2")) == 2
    assert workers.said(r"handlers.py\", line \d+ in do")


@pytest.mark.prove
def test_a_timeout_is_for_one_message_and_not_for_the_wait_between_two(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    workers = work("--timeout", "2")
    jobs.put([1])
    journal.until("end", 1)

    jobs.put([2], delay=2.2)
    journal.until("end", 2)

    assert len(workers.started()) == 1
    assert workers.stops() == 0


@pytest.mark.prove
def test_what_dies_at_once_again_and_again_is_replaced_after_a_growing_pause(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shmq.host.supervision.child_process.AT_ONCE", 3600.0)
    caplog.set_level(logging.INFO, "shmq.workers")
    jobs = broker.create_queue("jobs", max_deliveries=4)
    handler = "tests.system.workers.handlers:act"
    supervisor = Supervisor([Plan(handler=handler, queue="jobs", namespace=broker.namespace)])
    thread = threading.Thread(target=supervisor.run)
    thread.start()

    jobs.put([1, "exit 1"])
    eventually(lambda: caplog.text.count("started, pid") == 5, "the last one is started")
    supervisor.stop()
    thread.join()

    told = re.findall(r"failed (\d) times in a row: the next starts in ([\d.]+) s", caplog.text)
    assert dict(told) == {"2": "0.1", "3": "0.2", "4": "0.4"}


@pytest.mark.prove
def test_a_process_that_cannot_be_started_is_tried_again(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    workers = work()
    workers.ready(1)
    pid, limit = workers.process.pid, resource.RLIMIT_NOFILE
    before = resource.prlimit(pid, limit, (3, resource.getrlimit(limit)[1]))

    kill(workers.started()[0])
    workers.hears("cannot be started: .* Too many open files", 3)
    resource.prlimit(pid, limit, before)
    jobs.put([1])

    journal.until("end", 1)
    assert workers.stops() == 0


def test_the_message_of_a_killed_worker_is_done_by_another(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait"])
    workers = work("--processes", "2")
    (first,) = journal.until("begin", 1)

    kill(first.pid)
    again = journal.until("begin", 2)[-1]
    journal.open_gate()
    eventually(lambda: jobs.stats().acked == 1, "it is done")

    assert (again.number, again.delivery) == (1, 2)
    assert workers.said(rf"died, pid {first.pid}: SIGKILL")
    workers.ready(3)
    assert workers.stops() == 0


@pytest.mark.parametrize("operation", ["wait", "stuck"])
def test_no_worker_outlives_a_supervisor_that_is_killed(
    jobs: shmq.Queue, work: Work, journal: Journal, operation: str
) -> None:
    for number in range(3):
        jobs.put([number, operation])
    workers = work("--processes", "3")
    journal.until("begin", 3)

    workers.process.kill()

    workers.leaves_no_process()
    again = [jobs.get(timeout=PATIENCE) for _ in range(3)]
    assert sorted((message.body[0], message.delivery_count) for message in again) == [
        (number, 2) for number in range(3)
    ]


@pytest.mark.prove
def test_workers_that_are_only_starting_do_not_outlive_it_either(
    jobs: shmq.Queue, work: Work
) -> None:
    workers = work("--processes", "3")
    workers.hears("started, pid", 3)
    children = [child.pid for child in workers.process.children(recursive=True)]

    workers.process.kill()

    eventually(lambda: not any(map(runs, children)), "no process is left")


@pytest.mark.prove
@pytest.mark.parametrize("mode", ["parallel", "keyed", "fifo"])
def test_nothing_is_lost_while_workers_and_a_supervisor_are_killed_at_random(
    broker: shmq.Broker, work: Work, journal: Journal, mode: str
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=None, visibility_timeout=3600)
    chance = random.Random(mode)
    for number in range(300):
        jobs.put([number, "sleep 0.002"], group=f"group {number % 10}")
    workers = work("--processes", "3", "--mode", mode)

    for kills in range(1, 7):
        journal.until("end", kills * 40)
        if kills == 4:
            workers.process.kill()
            workers.leaves_no_process()
            workers = work("--processes", "3", "--mode", mode)
            workers.hears("started, pid", 3)  # what the first ones did may be enough already
        else:
            begun = journal.entries("begin")[-1].pid
            others = [pid for pid in workers.started() if runs(pid)]
            kill(chance.choice([begun, *others]) if runs(begun) else others[0])
    eventually(lambda: jobs.stats().acked == 300, "all are done")

    assert set(journal.numbers("end")) == set(range(300))
    assert workers.stops() == 0
    stats = jobs.stats()
    assert (stats.depth, stats.in_flight, stats.dead_lettered) == (0, 0, 0)
    if mode != "parallel":
        in_order(journal, 1 if mode == "fifo" else 10)


def in_order(journal: Journal, groups: int) -> None:
    """Within a group nothing begins for the first time before all before it have begun."""
    for group in range(groups):
        first: list[int] = []
        for entry in journal.entries("begin"):
            if entry.number % groups == group and entry.number not in first:
                first.append(entry.number)
        assert first == sorted(first)


@pytest.mark.prove
def test_a_worker_leaves_a_signal_of_the_whole_terminal_to_its_supervisor(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait"])
    work()
    (begun,) = journal.until("begin", 1)

    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(begun.pid, number)
    journal.open_gate()

    (ended,) = journal.until("end", 1)
    assert ended.pid == begun.pid


def test_a_queue_that_is_held_by_a_stopped_process_was_not_deleted(broker: shmq.Broker) -> None:
    broker.create_queue("jobs")
    handler = "tests.system.workers.handlers:act"
    supervisor = Supervisor([Plan(handler=handler, queue="jobs", namespace=broker.namespace)])
    (child,) = supervisor._children
    with locks_of_queue(broker.namespace, "jobs")["gets"].held_by_stopped():
        supervisor._stop_if_deleted(child)
    assert not supervisor._stopped

    broker.delete_queue("jobs")
    supervisor._stop_if_deleted(child)
    assert supervisor._stopped
    child.queue.close()


def test_a_handled_message_waits_for_a_lock_that_a_stopped_process_holds(
    broker: shmq.Broker,
) -> None:
    jobs = broker.create_queue("jobs", visibility_timeout=3600)
    jobs.put([1])
    message = jobs.get()
    plan = Plan(handler="", queue="jobs", namespace=broker.namespace)
    loop = WorkerLoop("worker", plan, jobs, lambda _: None, CurrentDelivery(2))
    with locks_of_queue(broker.namespace, "jobs")["gets"].held_by_stopped():
        handled = in_thread(loop._handle, message)
        wait([handled], 1.0)  # far longer than the lock is waited for at a time
        assert not handled.done()
    handled.result(PATIENCE)
    assert jobs.stats().acked == 1
