"""Schedules: each run is put once, whatever happens to supervisors, clocks and queues."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.remote.address import Target
from shmq.workers import ledger
from shmq.workers.ledger import PUBLISHER, Ledger, list_schedules
from shmq.workers.plan import Plan
from shmq.workers.schedule import Schedule
from shmq.workers.supervisor import Supervisor
from shmq.workers.ticker import Ticker
from tests.support.jumping_clock import build_shim, needs_cc, run_jumping
from tests.support.memory_loss import bring_back, lose_memory
from tests.support.namespaces import own_namespace
from tests.support.stopped import stopped_inside
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import eventually
from tests.support.writer_process import running_writer
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal, Workers

#: What each script begins with: ``at`` sets the wall clock, ``got`` takes what has been put.
BEGIN = """
import datetime, logging, math, mmap, os, sys, time
import shmq
from shmq.workers.ledger import Ledger, list_schedules
from shmq.workers.plan import Plan
from shmq.workers.schedule import Schedule
from shmq.workers.ticker import Ticker
logging.basicConfig(stream=open(os.devnull, "w"))
with open(os.environ["JUMP"], "r+b") as file:
    offset = mmap.mmap(file.fileno(), 4096)

def at(text):
    offset[:8] = bytes(8)
    seconds = math.ceil(datetime.datetime.fromisoformat(text).timestamp() - time.time())
    offset[:8] = seconds.to_bytes(8, "little", signed=True)

broker = shmq.connect(sys.argv[1])
queue = broker.queue("jobs")

def declared(**how):
    plan = Plan(handler="m:f", queue="jobs", namespace=sys.argv[1])
    made = Ticker(plan, Schedule(**how))
    made.begin()
    return made

def ticker(**how):
    made = declared(**how)
    made.step()
    return made

def got():
    bodies = []
    for message in queue.consume(block=False):
        bodies.append(message.headers["scheduled_at"])
        message.ack()
    return bodies

def shown():
    (one,) = list_schedules(broker)
    return one
"""


#: What `stopped_inside` runs to hold the turn of a publisher of the queue ``jobs``.
IN_COMMIT = """
import os, signal, sys
import shmq
from shmq.client.local import staged_publish
find = staged_publish._find_marker
def find_stopped(queue):
    os.kill(os.getpid(), signal.SIGSTOP)
    return find(queue)
with shmq.connect(sys.argv[1]) as broker:
    publisher = broker.queue("jobs").staged_publisher(sys.argv[2])
    staged_publish._find_marker = find_stopped
    publisher.commit_batch(1, [])
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes the wall clock jump."""
    return build_shim(tmp_path_factory.mktemp("clock"))


# ---- clocks ----


@needs_cc
def test_the_first_run_is_the_next_one_and_each_is_put_once(
    shim: Path, namespace: str, jobs: shmq.Queue
) -> None:
    code = """
at("2027-05-01T10:00:10+00:00")
one, two = ticker(cron="0 6 * * *"), ticker(cron="0 6 * * *")
assert got() == [] and shown().last_run is None and not shown().overdue
at("2027-05-02T05:59:50+00:00")
one.step(), two.step()
assert got() == []
assert 0 < one.pause() <= 1
at("2027-05-02T06:00:00+00:00")
for each in (one, two, one, two, ticker(cron="0 6 * * *")):
    each.step()
assert got() == ["2027-05-02T06:00:00+00:00"]
assert shown().outcome == "done"
assert shown().next_run - shown().last_run == 86_400
"""
    run_jumping(shim, BEGIN + code, namespace)


@needs_cc
def test_a_clock_that_is_set_back_repeats_no_run(
    shim: Path, namespace: str, jobs: shmq.Queue
) -> None:
    code = """
at("2027-05-01T10:00:10+00:00")
one = ticker(every=600.0)
at("2027-05-01T10:10:00+00:00")
one.step()
assert got() == ["2027-05-01T10:10:00+00:00"]
at("2027-05-01T09:09:00+00:00")
one.step()
two = ticker(every=600.0)
for minute in range(10, 59, 10):
    at(f"2027-05-01T09:{minute}:01+00:00")
    one.step(), two.step()
at("2027-05-01T10:10:01+00:00")
one.step(), two.step()
assert got() == []
at("2027-05-01T10:20:01+00:00")
two.step(), one.step()
assert got() == ["2027-05-01T10:20:00+00:00"]
"""
    run_jumping(shim, BEGIN + code, namespace)


@needs_cc
def test_a_schedule_that_began_before_the_clock_was_set_back_begins_again(
    shim: Path, namespace: str, jobs: shmq.Queue
) -> None:
    code = """
at("2031-01-01T00:00:10+00:00")
one = ticker(every=600.0)
at("2027-05-01T10:00:10+00:00")
one.step()
at("2027-05-01T10:10:00+00:00")
one.step()
assert got() == ["2027-05-01T10:10:00+00:00"]
"""
    run_jumping(shim, BEGIN + code, namespace)


@needs_cc
def test_after_a_wrong_clock_the_schedule_can_be_deleted(
    shim: Path, namespace: str, jobs: shmq.Queue
) -> None:
    code = """
at("2030-12-31T23:59:50+00:00")
one = ticker(every=600.0)
at("2031-01-01T00:00:00+00:00")
one.step()
at("2027-05-01T10:10:00+00:00")
one.step()
assert got() == ["2031-01-01T00:00:00+00:00"]
Ledger(broker, queue).forget()
queue.staged_publisher("schedule").discard()
at("2027-05-01T10:20:00+00:00")
two = ticker(every=600.0)
assert got() == []
at("2027-05-01T10:30:00+00:00")
one.step()
two.step()
assert got() == ["2027-05-01T10:30:00+00:00"]
"""
    run_jumping(shim, BEGIN + code, namespace)


@needs_cc
def test_summer_time_begins_and_ends_with_one_run_each(
    shim: Path, namespace: str, jobs: shmq.Queue
) -> None:
    code = """
how = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
at("2027-03-28T00:30:00+01:00")
one = ticker(**how)
for clock in ("00:59", "01:00", "01:01", "01:30", "01:31", "02:30"):
    at(f"2027-03-28T{clock}:00+00:00")
    one.step(), ticker(**how)
assert got() == ["2027-03-28T03:00:00+02:00"]
at("2027-10-30T12:00:00+00:00")
one.step()
got()
for clock in ("00:29", "00:30", "00:31", "01:00", "01:29", "01:30", "01:31", "02:30"):
    at(f"2027-10-31T{clock}:00+00:00")
    one.step(), ticker(**how)
assert got() == ["2027-10-31T02:30:00+02:00"]
"""
    run_jumping(shim, BEGIN + code, namespace)


# ---- runs that were missed ----


@needs_cc
def test_missed_runs_are_put_once_or_skipped(shim: Path, namespace: str, jobs: shmq.Queue) -> None:
    code = """
how = {"cron": "0 6 * * *"}
at("2027-05-01T10:00:00+00:00")
one = ticker(**how)
at("2027-05-04T07:00:00+00:00")
assert shown().overdue
one.step()
assert got() == ["2027-05-04T06:00:00+00:00"]
at("2027-05-09T07:00:00+00:00")
ticker(**how, missed="skip")
one.step()
assert got() == []
assert shown().outcome == "skipped" and shown().missed == "skip" and not shown().overdue
at("2027-05-10T06:00:30+00:00")
ticker(**how, missed="skip")
assert got() == ["2027-05-10T06:00:00+00:00"]
"""
    run_jumping(shim, BEGIN + code, namespace)


@needs_cc
def test_a_changed_schedule_has_missed_nothing_and_its_policy_may_change(
    shim: Path, namespace: str, jobs: shmq.Queue
) -> None:
    code = """
at("2027-05-01T10:00:00+00:00")
old = ticker(cron="0 18 * * *")
new = ticker(cron="0 9 * * *")
assert got() == []
at("2027-05-01T18:00:00+00:00")
old.step(), new.step()
assert got() == ["2027-05-01T18:00:00+00:00"]  # as long as the old program runs
at("2027-05-02T09:00:00+00:00")
new.step()
assert got() == ["2027-05-02T09:00:00+00:00"]
at("2027-05-03T12:00:00+00:00")
ticker(cron="0 9 * * *", missed="skip")
assert got() == [] and shown().outcome == "skipped"
"""
    run_jumping(shim, BEGIN + code, namespace)


@needs_cc
def test_a_run_waits_for_room_and_stands_for_later_ones(
    shim: Path, namespace: str, broker: shmq.Broker
) -> None:
    code = """
at("2027-05-01T10:00:30+00:00")
one = ticker(every=60.0)
queue.put(b"first")
at("2027-05-01T10:01:00+00:00")
one.step()
assert one.pause() > 0 and shown().last_run is None
queue.get().ack()
at("2027-05-01T10:05:10+00:00")
while not queue.qsize():
    time.sleep(one.pause())
    one.step()
assert got() == ["2027-05-01T10:05:00+00:00"]
"""
    broker.create_queue("jobs", capacity=1)
    run_jumping(shim, BEGIN + code, namespace)


def test_a_queue_that_drops_its_oldest_messages_has_room(
    namespace: str, broker: shmq.Broker
) -> None:
    jobs = broker.create_queue("jobs", capacity=1, overflow="drop-oldest")
    jobs.put("first")
    plan = Plan(handler="m:f", queue="jobs", namespace=namespace)
    declare_past(broker, plan, hours_ago=5)
    run_once(plan)
    assert [message.body for message in jobs.peek()] == [None]


# ---- deaths ----


@needs_cc
def test_a_supervisor_that_dies_between_two_steps_of_a_run_leaves_it_to_others(
    shim: Path, namespace: str, jobs: shmq.Queue
) -> None:
    code = """
at("2027-05-01T10:00:30+00:00")
one = ticker(every=60.0)

def dies_after(method, at_commit):
    if os.fork() == 0:
        made = declared(every=60.0)
        publisher = made._publisher
        real = getattr(publisher, method)
        def die(*arguments, **how):
            if not at_commit:
                real(*arguments, **how)
            os._exit(0)
        setattr(publisher, method, die)
        made.step()
        os._exit(1)
    assert os.wait()[1] == 0

at("2027-05-01T10:01:00+00:00")
dies_after("stage", False)
one.step()
assert got() == ["2027-05-01T10:01:00+00:00"]
at("2027-05-01T10:02:00+00:00")
dies_after("stage", True)
dies_after("commit_batch", False)
assert shown().last_run == shown().next_run - 60
one.step()
assert shown().outcome == "done" or queue.qsize() == 1
assert got() == ["2027-05-01T10:02:00+00:00"]
assert shown().last_run + 60 == shown().next_run
at("2027-05-01T10:03:00+00:00")
one.step()
assert got() == ["2027-05-01T10:03:00+00:00"]
"""
    run_jumping(shim, BEGIN + code, namespace)


def put_once(jobs: shmq.Queue, journal: Journal) -> set[int]:
    """Check that each run has one message, however often that was delivered; return the runs."""
    runs = {(entry.number, entry.pid) for entry in journal.entries("run")}
    slots = {slot for slot, _ in runs}
    assert len(slots) == len(runs) == jobs.stats().acked
    return slots


def test_two_supervisors_put_each_run_once(jobs: shmq.Queue, work: Work, journal: Journal) -> None:
    crew = [work(handler="ticking") for _ in range(2)]
    journal.until("run", 4)
    for workers in crew:
        workers.ready(1)
        assert workers.stops() == 0
    eventually(jobs.empty, "all are done")
    put_once(jobs, journal)


def await_runs(journal: Journal, count: int) -> None:
    """Wait for so many runs; what a killed worker had is delivered, and journaled, again."""
    eventually(
        lambda: len({entry.number for entry in journal.entries("run")}) >= count, f"{count} runs"
    )


@pytest.mark.prove
def test_supervisors_that_are_killed_put_each_of_thirty_runs_once(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    chance = random.Random(20261126)
    crew = [work(handler="ticking") for _ in range(2)]
    for count in range(1, 31):
        await_runs(journal, count)
        for workers in crew:
            workers.ready(1)
        time.sleep(chance.uniform(0.0, 1.0))  # somewhere between two runs, or within one
        crew.pop(chance.randrange(2)).close()
        crew.append(work(handler="ticking"))
    for workers in crew:
        workers.ready(1)
    eventually(jobs.empty, "all are delivered")
    for workers in crew:
        assert workers.stops() == 0
    assert len(put_once(jobs, journal)) >= 30


#: In which two runs are due, and usually put, in seconds; what is late then is tried again.
LONG_ENOUGH = 10.0


def goes_on(stopped: Workers, other: Workers, journal: Journal) -> bool:
    """Whether the other one goes on while one is stopped; if not, its log names that one."""
    pids = [*stopped.started(), stopped.process.pid]
    names_it = re.compile(rf"by PID (?:{'|'.join(map(str, pids))}) \(stopped\)")

    def has_gone_on() -> bool:
        return len(journal.entries("run")) >= runs + 2

    def has_named_it() -> bool:
        assert not other.has_ended(), other.log
        # The same error is logged once, so an earlier stop may have named it.
        return names_it.search(other.log.splitlines()[-1]) is not None

    runs = len(journal.entries("run"))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    # First, because what an earlier stop was told about is still the last line.
    until = time.monotonic() + LONG_ENOUGH
    while time.monotonic() < until and not has_gone_on():
        time.sleep(0.05)
    eventually(
        lambda: has_gone_on() or has_named_it(), "it goes on, or names the one that is stopped"
    )
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    went_on = has_gone_on()
    journal.until("run", len(journal.entries("run")) + 2)
    return went_on


@pytest.mark.prove
def test_a_supervisor_that_is_stopped_holds_up_no_run(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    stopped, other = work(handler="ticking"), work(handler="ticking")
    journal.until("run", 2)
    other.ready(1)
    # Stopped in a critical section, it holds up the other one, which then says so.
    assert any(goes_on(stopped, other, journal) for _ in range(20)), other.log
    assert stopped.stops() == other.stops() == 0
    put_once(jobs, journal)


def test_a_supervisor_that_is_stopped_in_a_commit_is_named(
    namespace: str, jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    workers = work(handler="ticking")
    journal.until("run", 1)
    with stopped_inside(IN_COMMIT, namespace, PUBLISHER) as stopped:
        workers.hears(rf"is being committed by PID {stopped.pid} \(stopped\), python.*kill -CONT")
        runs = len(journal.entries("run"))
        os.kill(stopped.pid, signal.SIGCONT)
        stopped.wait()
    journal.until("run", runs + 2)
    assert workers.stops() == 0
    put_once(jobs, journal)


# ---- where the queue is ----


def run_once(plan: Plan) -> None:
    """Put the run that is due, as a supervisor does when it starts."""
    ticker = Ticker(plan, Schedule(every=3600.0))
    with contextlib.closing(ticker):
        ticker.begin()
        ticker.step()


def declare_past(broker: shmq.Broker, plan: Plan, hours_ago: int) -> None:
    """Declare a schedule, as of some hours ago, whose last run has been missed since."""
    with contextlib.closing(Ledger(broker, broker.queue(plan.queue))) as ledger:
        now = round(dt.datetime.now(dt.UTC).timestamp() * 1000)
        ledger.declare(Schedule(every=3600.0), plan.handler, now - hours_ago * 3_600_000)


def test_a_server_and_its_host_share_a_schedule() -> None:
    with (
        own_namespace(inhabited=True) as namespace,
        shmq.connect(namespace) as broker,
        TCP_SERVERS.serve(namespace) as url,
    ):
        jobs = broker.create_queue("jobs")
        remote = Plan(handler="m:f", queue="jobs", server=Target.of(url, None, None, 5.0, 30.0))
        local = Plan(handler="m:f", queue="jobs", namespace=namespace)
        declare_past(broker, local, hours_ago=5)
        for plan in (remote, local, remote):
            run_once(plan)
        assert jobs.qsize() == 1
        with shmq.connect(url) as there:
            (one,) = list_schedules(there)
        assert (one.queue, one.outcome, one.overdue) == ("jobs", "waiting", False)


def test_schedules_are_listed_while_the_queue_of_one_is_deleted(
    namespace: str, broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        broker.create_queue(name)
        declare_past(broker, Plan(handler="m:f", queue=name, namespace=namespace), hours_ago=5)
        run_once(Plan(handler="m:f", queue=name, namespace=namespace))
    describe = ledger._describe

    def describe_late(*arguments: Any) -> ledger.ScheduleSummary:
        with contextlib.suppress(shmq.NoSuchQueue):  # deleted by the first call
            broker.delete_queue("one")
        return describe(*arguments)

    monkeypatch.setattr(ledger, "_describe", describe_late)

    assert [schedule.queue for schedule in list_schedules(broker)] == ["two"]


def test_the_outcome_of_a_run_is_that_of_its_message(namespace: str, broker: shmq.Broker) -> None:
    def outcome() -> tuple[str | None, str]:
        (one,) = list_schedules(broker)
        return one.outcome, one.error

    jobs = broker.create_queue("jobs", max_deliveries=2, retry_delay=0)
    plan = Plan(handler="m:f", queue="jobs", namespace=namespace)
    declare_past(broker, plan, hours_ago=5)
    assert outcome() == (None, "")
    run_once(plan)
    assert outcome() == ("waiting", "")
    message = jobs.get()
    assert (message.body, message.codec) == (None, "msgpack")
    assert outcome() == ("running", "")
    message.nack(0, error="no printer")
    assert outcome() == ("waiting", "no printer")
    jobs.get().nack(0, error="no paper")
    assert outcome() == ("failed", "no paper")
    broker.queue("jobs.dlq").get().ack()
    assert outcome() == ("done", "")
    broker.delete_queue("jobs")
    assert list_schedules(broker) == []


@pytest.mark.debris
def test_a_durable_queue_remembers_its_last_run_after_a_restart_of_the_machine(
    namespace: str, broker: shmq.Broker
) -> None:
    plan = Plan(handler="m:f", queue="jobs", namespace=namespace)
    with running_writer(namespace) as writer:
        jobs = broker.create_queue(
            "jobs", durability="journal", dead_letter=None, dedupe_window=86_400.0
        )
        eventually(lambda: jobs.stats().journal_writer, "the writer follows it")
        jobs.close()
        declare_past(broker, plan, hours_ago=5)
        for _ in range(2):
            run_once(plan)
            assert broker.queue("jobs").qsize() == 1
            (one,) = list_schedules(broker)
            assert (one.outcome, one.overdue) == ("waiting", False)
            writer.kill()
            lose_memory(namespace)
            bring_back(namespace, writer.folder)
            writer.start()


def test_a_queue_with_two_schedules_is_refused() -> None:
    plan = Plan(handler="m:f", queue="jobs", schedule=Schedule(every=1.0))
    with pytest.raises(shmq.InvalidOption, match="queue 'jobs' has two schedules, of m:f and m:f"):
        Supervisor([plan, plan])


def test_a_queue_whose_name_leaves_no_room_for_staging_is_refused() -> None:
    with pytest.raises(shmq.InvalidOption, match="has 85 characters, so nothing can be staged"):
        Plan(handler="m:f", queue="q" * 85, schedule=Schedule(every=1.0))


def test_a_supervisor_whose_queue_does_not_exist_ends(namespace: str) -> None:
    plan = Plan(handler="m:f", queue="jobs", namespace=namespace, schedule=Schedule(every=1.0))
    with pytest.raises(shmq.NoSuchQueue):
        Supervisor([plan]).run()
