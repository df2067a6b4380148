"""How workers end: asked to, at once, by themselves; and with which exit code."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

import pytest

import shmq
from tests.support.proxy import Proxy
from tests.support.server import fixed_port, serve
from tests.support.waiting import PATIENCE, eventually
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal, Workers


@pytest.mark.prove
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_the_messages_at_hand_be_finished_and_no_others(
    jobs: shmq.Queue, work: Work, journal: Journal, number: int
) -> None:
    for body in range(6):
        jobs.put([body, "wait"])
    workers = work("--processes", "2")
    journal.until("begin", 2)

    workers.signal(number)
    workers.hears("waiting for the current messages")
    journal.open_gate()

    assert workers.ends() == 0
    assert sorted(journal.numbers("end")) == [0, 1]
    assert len(workers.said("ends, drained: 1 handled")) == 2
    stats = jobs.stats()
    assert (stats.acked, stats.depth, stats.in_flight) == (2, 4, 0)


@pytest.mark.prove
def test_an_outage_of_the_server_ends_no_process(
    namespace: str, jobs: shmq.Queue, started: Callable[..., Workers], journal: Journal
) -> None:
    port = fixed_port()
    with serve(namespace) as server, contextlib.closing(Proxy(server.url, port)) as proxy:
        handler = "tests.system.workers.handlers:act"
        workers = started("-m", "shmq.cli", "--url", proxy.url, "worker", handler, "-q", "jobs")
        workers.ready(1)
        proxy.close()
        workers.hears("waits for the server")
        jobs.put([1])
        with contextlib.closing(Proxy(server.url, port)):
            journal.until("end", 1)
            assert workers.stops() == 0
    assert len(workers.started()) == len(workers.said("waits for the server")) == 1


def test_what_was_leased_ahead_goes_back_uncounted(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    for body in range(10):
        jobs.put([body, "wait"])
    workers = work("--prefetch", "8")
    journal.until("begin", 1)
    assert jobs.stats().in_flight == 8

    workers.signal(signal.SIGTERM)
    workers.hears("waiting for the current messages")
    journal.open_gate()

    assert workers.ends() == 0
    left = jobs.get_many(20, block=False)
    assert [(message.body[0], message.delivery_count) for message in left] == [
        (body, 1) for body in range(1, 10)
    ]


@pytest.mark.prove
def test_workers_that_wait_end_at_a_signal(jobs: shmq.Queue, work: Work) -> None:
    both = [work("--processes", "2", "--mode", mode) for mode in ("parallel", "fifo")]
    for workers in both:
        workers.ready(2)

    assert [workers.stops() for workers in both] == [0, 0]
    assert jobs.attachments() == [jobs.attachments()[0]]


@pytest.mark.prove
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_at_once_and_the_messages_at_hand_go_back(
    jobs: shmq.Queue, work: Work, journal: Journal, number: int, code: int
) -> None:
    workers = work("--processes", "6")
    workers.ready(6)
    jobs.put([1, "wait"])
    journal.until("begin", 1)

    workers.signal(number)
    workers.hears("waiting for the current messages")
    workers.signal(number)

    assert workers.ends() == code
    assert jobs.get(timeout=PATIENCE).delivery_count == 2
    assert "Traceback" not in workers.log


@pytest.mark.prove
def test_the_drain_timeout_ends_what_takes_longer(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait"])
    workers = work("--drain-timeout", "200ms")
    journal.until("begin", 1)

    workers.signal(signal.SIGTERM)

    assert workers.ends() == 1
    assert workers.log.splitlines()[-1] == (
        "shmq: the current messages were not done within --drain-timeout 0.2 s: processes killed: "
        "1 of 1"
    )
    assert jobs.get(timeout=PATIENCE).delivery_count == 2


@pytest.mark.prove
def test_a_worker_that_dies_while_it_is_to_end_is_not_replaced(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait", "exit 3"])
    workers = work()
    journal.until("begin", 1)

    workers.signal(signal.SIGTERM)
    workers.hears("waiting for the current messages")
    journal.open_gate()

    assert workers.ends() == 0
    assert len(workers.started()) == 1


@pytest.mark.prove
def test_a_worker_that_alone_gets_the_signal_is_replaced(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait"])
    workers = work()
    (begun,) = journal.until("begin", 1)

    os.kill(begun.pid, signal.SIGTERM)
    journal.open_gate()
    workers.ready(2)
    jobs.put([2])
    journal.until("end", 2)

    first, second = journal.entries("end")
    assert first.pid == begun.pid != second.pid
    assert "died" not in workers.log
    assert workers.stops() == 0


@pytest.mark.prove
def test_a_process_is_replaced_after_so_many_messages(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    for number in range(10):
        jobs.put([number])
    workers = work("--max-messages", "3", "--prefetch", "8")

    ended = journal.until("end", 10)
    workers.ready(4)

    assert [entry.number for entry in ended] == list(range(10))
    assert [entry.delivery for entry in ended] == [1] * 10
    assert [entry.pid for entry in ended] == [workers.started()[n // 3] for n in range(10)]
    assert "at once" not in workers.log
    assert workers.stops() == 0


@pytest.mark.prove
def test_idle_workers_end_by_themselves(jobs: shmq.Queue, work: Work, journal: Journal) -> None:
    for number in range(20):
        jobs.put([number])
    workers = work("--processes", "2", "--idle-timeout", "0.2")

    assert workers.ends() == 0
    assert sorted(journal.numbers("end")) == list(range(20))
    assert len(workers.said("ends, idle")) == len(workers.started()) == 2


@pytest.mark.prove
def test_a_queue_that_is_deleted_ends_its_workers(
    jobs: shmq.Queue, broker: shmq.Broker, work: Work
) -> None:
    for mode in ("parallel", "fifo"):
        queue = broker.ensure_queue("jobs")
        workers = work("--processes", "2", "--mode", mode)
        workers.ready(2)
        queue.close()

        broker.delete_queue("jobs")

        assert workers.ends() == 4
        assert workers.log.splitlines()[-1] == (
            "shmq: queue 'jobs' was deleted: its workers have ended"
        )


def test_a_queue_that_is_not_there_is_refused_before_anything_starts(
    broker: shmq.Broker, work: Work
) -> None:
    workers = work()

    assert workers.ends() == 4
    assert workers.started() == []
    assert workers.log.startswith("shmq: queue 'jobs' does not exist in namespace")


@pytest.mark.prove
def test_a_supervisor_that_was_started_to_ignore_a_signal_ignores_it(
    jobs: shmq.Queue, started: Callable[..., Workers], journal: Journal
) -> None:
    code = (
        "import signal, shmq.cli.main as m; signal.signal(signal.SIGHUP, signal.SIG_IGN); m.main()"
    )
    workers = started("-c", code, "worker", "tests.system.workers.handlers:act", "-q", "jobs")
    workers.ready(1)

    workers.signal(signal.SIGHUP)
    jobs.put([1])

    eventually(lambda: jobs.stats().acked == 1, "it is done")
    assert workers.stops() == 0
