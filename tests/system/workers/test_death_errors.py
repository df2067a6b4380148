"""Why a worker's process died: the message that it was handling keeps that as its error."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import shmq
from shmq.host.namespace import roles
from tests.support.own_shm import own_shm, with_own_shm
from tests.support.processes import run_script
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal, kill


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process leaves a report to the supervisor, however long that takes."""
    monkeypatch.setattr(roles, "_REPORTED_WITHIN", PATIENCE)


def dead_letter(broker: shmq.Broker) -> shmq.Message:
    dead = broker.queue("jobs.dlq")
    eventually(lambda: dead.qsize() == 1, "a dead letter")
    (letter,) = dead.peek()
    return letter


def error_of(letter: shmq.Message) -> str:
    assert letter.dead is not None
    assert letter.dead.error is not None
    return str(letter.dead.error)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("signal SIGKILL", "killed by signal 9"),
        ("signal SIGSEGV", "killed by signal 11"),
        ("exit 0", "exit code 0"),
        ("exit 1", "exit code 1"),
        ("exit 3", "exit code 3"),
        ("exit 80", "exit code 80"),
    ],
)
def test_a_message_whose_process_died_has_the_reason(
    broker: shmq.Broker, work: Work, operation: str, error: str
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=2, visibility_timeout=3600)
    jobs.put([1, operation])
    workers = work("--timeout", "3600")

    letter = dead_letter(broker)

    assert error_of(letter) == error
    assert letter.dead is not None
    assert (letter.dead.reason, letter.dead.deliveries) == ("max_deliveries", 2)
    assert len(list(broker.queue("jobs.dlq").peek(where=f"error = '{error}'"))) == 1
    assert workers.stops() == 0


@pytest.mark.parametrize("operation", ["wait", "stuck"])
def test_so_has_one_whose_handler_took_too_long(
    broker: shmq.Broker, work: Work, operation: str
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=1, visibility_timeout=3600)
    jobs.put([1, operation])
    workers = work("--timeout", "0.3")

    assert error_of(dead_letter(broker)) == "handler timeout (0.3 s)"
    assert workers.stops() == 0


@pytest.mark.prove
@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("signal SIGKILL", "killed by signal 9"),
        ("exit 3", "exit code 3"),
        ("stuck", "handler timeout (0.3 s)"),
    ],
)
def test_so_has_one_of_the_queue_of_a_server(
    namespace: str, broker: shmq.Broker, started: Work, operation: str, error: str
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=2, visibility_timeout=3600)
    jobs.put([1, operation])
    handler = "tests.system.workers.handlers:act"
    with serve(namespace) as server:
        workers = started(
            *("-m", "shmq.cli", "--url", server.url, "worker", handler),
            *("-q", "jobs", "--timeout", "0.3"),
        )
        letter = dead_letter(broker)

        assert error_of(letter) == error
        assert letter.dead is not None
        assert (letter.dead.reason, letter.dead.deliveries) == ("max_deliveries", 2)
        assert workers.stops() == 0


def test_only_the_message_in_hand_has_it_and_it_is_delivered_once_more(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    for number in range(3):
        jobs.put([number, "wait"])
    workers = work("--prefetch", "3")
    (first,) = journal.until("begin", 1)

    workers.process.suspend()  # the messages return at its next step, and no successor starts
    kill(first.pid)
    workers.process.resume()
    journal.until("begin", 2)
    workers.process.kill()
    workers.leaves_no_process()

    again = [jobs.get(timeout=PATIENCE) for _ in range(3)]
    found = {message.body[0]: message for message in again}
    assert str(found[0].last_error) == "killed by signal 9"
    assert [found[number].last_error for number in (1, 2)] == [None, None]
    assert [found[number].delivery_count for number in (0, 1, 2)] == [3, 1, 1]


def test_a_message_that_another_consumer_got_in_the_meantime_stays_as_it_is(
    jobs: shmq.Queue, work: Work, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "_REPORTED_WITHIN", 0.0)
    jobs.put([1, "wait"])
    workers = work()
    (first,) = journal.until("begin", 1)

    workers.process.suspend()
    kill(first.pid)
    mine = jobs.get(timeout=PATIENCE)  # returned by this process
    workers.process.resume()
    workers.hears(f"died, pid {first.pid}: SIGKILL")
    workers.ready(2)

    assert (mine.delivery_count, mine.last_error) == (2, None)
    mine.ack()
    assert workers.stops() == 0
    stats = jobs.stats()
    assert (stats.acked, stats.depth, stats.in_flight) == (1, 0, 0)


def test_a_consumer_that_waits_for_the_message_gets_it_with_the_reason(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait"])
    workers = work()
    (first,) = journal.until("begin", 1)
    mine: list[shmq.Message] = []
    waits = threading.Thread(target=lambda: mine.append(jobs.get(timeout=PATIENCE)))

    workers.process.suspend()
    workers.signal(signal.SIGTERM)  # so it starts no successor, which could be first
    kill(first.pid)
    waits.start()
    waits.join(0.5)  # the death is noticed before that, as a rule
    assert not mine
    workers.process.resume()
    waits.join()

    assert str(mine[0].last_error) == "killed by signal 9"
    assert mine[0].delivery_count == 2
    mine[0].ack()
    assert workers.ends() == 0


def test_a_message_that_its_handler_has_settled_is_left_alone(
    broker: shmq.Broker, jobs: shmq.Queue, work: Work
) -> None:
    jobs.put([1, "settle ack", "exit 3"])
    jobs.put([2, "settle reject", "signal SIGKILL"])
    workers = work()

    letter = dead_letter(broker)
    workers.ready(3)

    assert letter.dead is not None
    assert (letter.dead.reason, letter.dead.error) == ("rejected", None)
    assert workers.stops() == 0
    stats = jobs.stats()
    assert (stats.acked, stats.depth, stats.in_flight, stats.nacked) == (1, 0, 0, 0)


@pytest.mark.prove
def test_the_reason_is_that_of_each_of_several_processes(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=1, visibility_timeout=3600)
    for number in range(3):
        jobs.put([number, "wait"])
    workers = work("--processes", "3", "--drain-timeout", "0")
    begun = journal.until("begin", 3)

    os.kill(workers.process.pid, signal.SIGTERM)  # its processes are killed, each with a message
    workers.ends()
    dead = broker.queue("jobs.dlq")
    eventually(lambda: dead.qsize() == len(begun), "the dead letters")

    assert {error_of(letter) for letter in dead.peek(limit=3)} == {"killed by signal 9"}


@pytest.mark.prove
def test_processes_that_die_at_the_same_time_are_each_reported(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=1, visibility_timeout=3600)
    for number in range(3):
        jobs.put([number, "wait"])
    workers = work("--processes", "3")
    begun = journal.until("begin", 3)

    workers.process.suspend()  # it finds all of them dead at its next step
    for event in begun:
        kill(event.pid)
    workers.process.resume()
    dead = broker.queue("jobs.dlq")
    eventually(lambda: dead.qsize() == len(begun), "the dead letters")

    assert [error_of(letter) for letter in dead.peek(limit=3)] == ["killed by signal 9"] * 3
    assert workers.stops() == 0


_CONNECT = """
import shmq
from shmq.client.remote.address import Target
from shmq.workers.plan import Plan
from shmq.workers.supervisor import Supervisor

plan = Plan(
    handler="os:abort",
    queue="jobs",
    server=Target.of("shmq://127.0.0.1:1", None, None, 5.0, 5.0),
)
try:
    Supervisor([plan]).run()
except shmq.ConnectionLost:
    print("no server")
"""


@own_shm
def test_workers_of_a_server_need_no_shared_memory_files() -> None:
    assert run_script(_CONNECT, before=with_own_shm("64k", ",ro")) == "no server\n"
