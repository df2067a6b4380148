"""What each mode promises about order, and about how many work at a time."""

from __future__ import annotations

import pytest

import shmq
from tests.support.waiting import eventually
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal, kill, overlaps


def test_parallel_processes_work_at_the_same_time(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    for number in range(4):
        jobs.put([number, "wait"])
    workers = work("--processes", "4")

    began = journal.until("begin", 4)

    assert sorted(entry.number for entry in began) == [0, 1, 2, 3]
    assert {entry.pid for entry in began} == set(workers.started())
    journal.open_gate()
    journal.until("end", 4)


@pytest.mark.prove
@pytest.mark.parametrize("prefetch", ["1", "16"])
def test_keyed_messages_of_a_group_come_in_order_and_one_at_a_time(
    jobs: shmq.Queue, work: Work, journal: Journal, prefetch: str
) -> None:
    for number in range(120):
        fails = ["first raise now"] if number % 10 == 3 else []
        jobs.put([number, *fails, "sleep 0.001"], group=f"group {number % 4}")
    work("--processes", "3", "--mode", "keyed", "--prefetch", prefetch)

    journal.until("end", 120)

    for group in range(4):
        entries = [entry for entry in journal.entries() if entry.number % 4 == group]
        failed = [one for one in entries if one.what == "begin" and one.number % 10 == 3]
        tries = [one for one in entries if one not in failed or one.delivery != 1]
        assert [entry.number for entry in tries[::2]] == list(range(group, 120, 4))
        assert list(overlaps(tries)) == []


@pytest.mark.prove
def test_keyed_groups_go_on_beside_each_other_and_what_has_none_is_free(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait"], group="a")
    jobs.put([2, "wait"], group="a")
    jobs.put([3, "wait"], group="b")
    jobs.put([4, "wait"])
    jobs.put([5, "wait"])
    work("--processes", "5", "--mode", "keyed").ready(5)

    journal.until("begin", 4)

    assert sorted(journal.numbers("begin")) == [1, 3, 4, 5]
    journal.open_gate()
    journal.until("end", 5)
    assert journal.numbers("begin")[-1] == 2


@pytest.mark.prove
def test_keyed_groups_are_not_held_back_by_what_was_leased_ahead(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1], group="a")
    jobs.put([2, "wait"])
    jobs.put([3], group="a")
    first = work("--mode", "keyed", "--prefetch", "2")
    began = journal.until("begin", 2)

    work("--mode", "keyed")
    journal.until("end", 2)

    assert journal.numbers("end") == [1, 3]
    assert [entry.pid for entry in began] == first.started() * 2
    journal.open_gate()
    journal.until("end", 3)


@pytest.mark.prove
def test_fifo_is_the_order_of_the_queue_over_all_processes_and_supervisors(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    both = [work("--processes", "2", "--mode", "fifo") for _ in range(2)]
    for workers in both:
        workers.ready(2)
    for number in range(60):
        jobs.put([number, *(["first raise now"] if number % 7 == 3 else [])])

    journal.until("end", 60)

    entries = journal.entries()
    failed = [one for one in entries if one.number % 7 == 3 and one.delivery == 1]
    tries = [entry for entry in entries if entry not in failed]
    assert [entry.number for entry in tries[::2]] == list(range(60))
    assert list(overlaps(tries)) == []
    for entry in failed:  # what failed comes again before anything else does
        assert entries[entries.index(entry) + 1].number == entry.number
    assert len({entry.pid for entry in entries}) == 1
    assert sum(len(workers.said("is the active worker")) for workers in both) == 1


def test_fifo_is_taken_over_when_the_active_process_is_killed(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    for number in range(5):
        jobs.put([number, "wait"] if number == 2 else [number])
    workers = work("--processes", "3", "--mode", "fifo")
    began = journal.until("begin", 3)

    kill(began[-1].pid)
    again = journal.until("begin", 4)[-1]

    assert (again.number, again.delivery) == (2, 2)
    assert again.pid != began[-1].pid
    journal.open_gate()
    journal.until("end", 5)
    assert journal.numbers("end") == [0, 1, 2, 3, 4]
    assert workers.stops() == 0


@pytest.mark.prove
def test_fifo_is_taken_over_when_the_active_supervisor_is_killed(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "wait"])
    jobs.put([2])
    first = work("--mode", "fifo")
    journal.until("begin", 1)
    second = work("--mode", "fifo")
    second.ready(1)

    first.process.kill()
    journal.until("begin", 2)
    journal.open_gate()
    journal.until("end", 2)

    assert journal.numbers("end") == [1, 2]
    assert {entry.pid for entry in journal.entries("end")} == set(second.started())
    first.leaves_no_process()


@pytest.mark.prove
def test_fifo_of_one_queue_does_not_wait_for_that_of_another(
    jobs: shmq.Queue, broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    others = broker.create_queue("others")
    work("--mode", "fifo").hears("is the active worker")
    others.put([1])
    jobs.put([2])

    work("--mode", "fifo", queue="others")

    journal.until("end", 2)


@pytest.mark.prove
def test_fifo_waits_out_the_back_off_of_a_message_before_the_next(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", retry_delay=3600, retry_delay_max=3600, max_deliveries=2)
    jobs.put([1, "first raise now"])
    jobs.put([2])
    workers = work("--mode", "fifo")
    workers.hears("failed")

    assert (jobs.stats().in_flight, jobs.stats().depth) == (1, 1)
    assert workers.stops() == 0  # a drain cuts the pause short
    assert [message.body[0] for message in jobs.peek()] == [1, 2]

    work("--mode", "fifo")
    journal.until("end", 2)
    assert journal.numbers("end") == [1, 2]


@pytest.mark.prove
def test_fifo_does_not_pause_before_a_dead_letter(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", retry_delay=3600, retry_delay_max=3600, max_deliveries=1)
    jobs.put([1, "raise now"])
    jobs.put([2])
    work("--mode", "fifo")

    journal.until("end", 1)

    assert journal.numbers("end") == [2]
    eventually(lambda: broker.queue("jobs.dlq").qsize() == 1, "a dead letter")
