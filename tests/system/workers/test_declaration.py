"""Workers declared in code, and the refusals of what cannot work."""

from __future__ import annotations

import dataclasses
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.workers.plan import Plan, load
from shmq.workers.supervisor import Supervisor
from tests.support.waiting import eventually
from tests.system.workers import handlers
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal, Workers

ACT = "tests.system.workers.handlers:act"

#: Two workers in one program, which is also what their processes import.
SCRIPT = """
import os

import shmq

namespace = os.environ["SHMQ_NAMESPACE"]
done = shmq.connect(namespace).queue("done")

@shmq.worker("jobs", namespace=namespace, processes=2)
def double(message):
    done.put(["doubled", 2 * message.body])

@shmq.worker("names", namespace=namespace)
async def greet(message):
    done.put(["greeted", message.body])

if __name__ == "__main__":
    shmq.run(double, greet)
"""


def test_a_declared_handler_is_still_called_as_a_function(jobs: shmq.Queue) -> None:
    seen: list[Any] = []
    jobs.put([7])

    assert inspect.getdoc(handlers.declared) == "What a declared handler says of itself."
    assert repr(handlers.declared) == (
        "<Worker 'tests.system.workers.handlers:declared' of queue 'declared'>"
    )
    with jobs.get() as message:
        assert shmq.Worker(lambda_free(seen), "jobs", None)(message) == 1
    assert seen == [7]


def lambda_free(seen: list[Any]) -> Callable[[shmq.Message], int]:
    def handle(message: shmq.Message) -> int:
        seen.append(message.body[0])
        return len(seen)

    handle.__qualname__ = "handle"
    return handle


def test_a_declared_worker_plans_what_was_declared() -> None:
    assert handlers.declared.plan == Plan(
        handler="tests.system.workers.handlers:declared",
        queue="declared",
        namespace=f"default-{os.geteuid()}",
        processes=2,
        mode="keyed",
        idle_timeout=0.2,
    )


@pytest.mark.prove
def test_a_program_runs_the_workers_that_it_declares(
    broker: shmq.Broker, started: Callable[..., Workers], tmp_path: Path
) -> None:
    jobs, names, done = (broker.create_queue(name) for name in ("jobs", "names", "done"))
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    workers = started(str(script))
    jobs.put(21)
    names.put("Ada")

    eventually(lambda: done.qsize() == 2, "both are done")

    assert sorted(message.body for message in done.peek()) == [["doubled", 42], ["greeted", "Ada"]]
    workers.ready(3)
    assert sorted(workers.said(r"(worker \S+) consumes queue")) == [
        "worker jobs/1",
        "worker jobs/2",
        "worker names/1",
    ]
    assert workers.stops() == 0


@pytest.mark.prove
def test_the_command_runs_a_declared_worker_as_it_declares(
    broker: shmq.Broker, started: Callable[..., Workers], journal: Journal
) -> None:
    broker.create_queue("declared").put([1])
    workers = started("-m", "shmq.cli", "worker", "tests.system.workers.handlers:declared")

    assert workers.ends() == 0

    assert journal.numbers("end") == [1]
    assert len(workers.said("declared/. ends, idle")) == 2


@pytest.mark.prove
def test_the_command_line_has_the_last_word(jobs: shmq.Queue, work: Work, journal: Journal) -> None:
    jobs.put([1])
    workers = work("--processes", "3", "--mode", "fifo", handler="declared")

    assert workers.ends() == 0

    assert journal.numbers("end") == [1]
    assert len(workers.started()) == 3
    assert len(workers.said("is the active worker of queue 'jobs'")) == 3


def test_a_supervisor_in_a_thread_is_stopped_by_another(
    jobs: shmq.Queue, namespace: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL", str(journal.path))
    supervisor = Supervisor([Plan(handler=ACT, queue="jobs", namespace=namespace)])
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    jobs.put([1, "wait"])
    journal.until("begin", 1)

    supervisor.stop()
    journal.open_gate()
    thread.join()
    supervisor.stop()

    assert journal.numbers("end") == [1]
    assert jobs.stats().acked == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_supervisor_that_is_stopped_before_it_runs_starts_nothing(
    jobs: shmq.Queue, namespace: str
) -> None:
    supervisor = Supervisor([Plan(handler=ACT, queue="jobs", namespace=namespace)])
    supervisor.stop()
    supervisor.run()
    assert jobs.stats().waiting_get == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"processes": 0}, "processes=0 is out of range: 1 to 1024"),
        ({"mode": "random"}, "mode='random' must be one of 'parallel', 'keyed', 'fifo'"),
        ({"prefetch": 0}, "prefetch=0 is out of range"),
        ({"prefetch": 2, "mode": "fifo"}, "prefetch=2 does not go with mode='fifo'"),
        ({"max_messages": 0}, "max_messages=0 is out of range"),
        ({"timeout": 0}, "timeout=0 s is out of range"),
        ({"idle_timeout": -1}, "idle_timeout=-1 s is out of range"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=told):
        shmq.worker("jobs", **wrong)(handlers.act)


def test_names_that_cannot_be_are_refused() -> None:
    with pytest.raises(shmq.InvalidName):
        shmq.worker("no/name")(handlers.act)
    with pytest.raises(shmq.InvalidName):
        dataclasses.replace(handlers.declared.plan, namespace="")


def test_a_supervisor_without_work_and_a_drain_timeout_below_none_are_refused() -> None:
    with pytest.raises(shmq.InvalidOption, match="no workers: give one or more"):
        shmq.run()
    with pytest.raises(shmq.InvalidOption, match="drain_timeout=-1 s is out of range"):
        handlers.declared.run(drain_timeout=-1)


def test_a_handler_that_other_processes_cannot_import_is_refused() -> None:
    def inner(message: shmq.Message) -> None: ...

    for handler in (inner, lambda message: message):
        with pytest.raises(shmq.InvalidOption, match="define it at the top of a module"):
            shmq.worker("jobs")(handler)


def test_a_handler_whose_name_is_taken_by_another_is_refused() -> None:
    hidden = shmq.worker("jobs")(lambda_free([]))
    hidden.handler.__module__ = ACT.partition(":")[0]
    again = shmq.worker("jobs")(hidden.handler)
    with pytest.raises(shmq.InvalidOption, match="has no attribute 'handle'"):
        _ = again.plan

    hidden.handler.__qualname__ = "act"
    with pytest.raises(shmq.InvalidOption, match="give each handler a name of its own"):
        _ = shmq.worker("jobs")(hidden.handler).plan


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("handlers", "'handlers' is not of the form module:function"),
        (":act", "is not of the form module:function"),
        ("no.such:act", "module 'no' does not exist here or on the Python path"),
        ("tests.system.workers.none:act", "module 'tests.system.workers.none' does not exist here"),
        ("tests.system.workers.handlers:none", "has no attribute 'none'"),
        ("tests.system.workers.handlers:number", "is of type int: name a function"),
    ],
)
def test_a_name_that_leads_to_no_handler_is_refused(name: str, told: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=told):
        load(name)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("def handle(", "SyntaxError"),
    ],
)
def test_a_module_that_fails_says_why_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    (tmp_path / "failing.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(shmq.InvalidOption, match="module 'failing' cannot be imported") as caught:
        load("failing:handle")

    assert told in str(caught.value)
    assert "failing.py" in str(caught.value)
    assert "failing" not in sys.modules


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tests.system.workers.handlers:act"], "declares no queue: name one"),
        (["no.such:act", "-q", "jobs"], "module 'no' does not exist"),
        (
            [ACT, "-q", "jobs", "--mode", "fifo", "--prefetch", "2"],
            "does not go with --mode 'fifo'",
        ),
    ],
)
def test_the_command_refuses_in_one_line_with_the_code_of_wrong_usage(
    jobs: shmq.Queue, started: Callable[..., Workers], arguments: list[str], told: str
) -> None:
    workers = started("-m", "shmq.cli", "worker", *arguments)

    assert workers.ends() == 2
    assert len(workers.log.splitlines()) == 1
    assert told in workers.log


def test_the_command_finds_a_handler_in_the_directory_where_it_is_started(
    jobs: shmq.Queue, started: Callable[..., Workers], tmp_path: Path
) -> None:
    (tmp_path / "here.py").write_text("def handle(message): pass\n")
    code = (
        "import sys, os; sys.path.remove(''); os.chdir(sys.argv.pop(1)); "
        "import shmq.cli.main as m; m.main()"
    )
    jobs.put([1])

    workers = started("-c", code, str(tmp_path), "worker", "here:handle", "-q", "jobs")

    eventually(lambda: jobs.stats().acked == 1, "it is done")
    assert workers.stops() == 0


def test_what_is_in_no_file_is_refused(started: Callable[..., Workers]) -> None:
    code = """
import shmq
def handle(message): ...
shmq.worker("jobs")(handle)
"""
    workers = started("-c", code)

    assert workers.ends() == 1
    assert "handler '__main__:handle' is in no file" in workers.log


def test_an_application_that_has_set_up_its_logging_gets_every_event_once(
    broker: shmq.Broker, started: Callable[..., Workers], tmp_path: Path
) -> None:
    broker.create_queue("jobs", max_deliveries=1).put([1])
    (tmp_path / "quiet.py").write_text(
        "import logging\n"
        "logging.basicConfig(format='mine: %(message)s', level=logging.INFO)\n"
        "def handle(message): raise ValueError('once')\n"
    )
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import shmq.cli.main as m; m.main()"

    workers = started("-c", code, str(tmp_path), "worker", "quiet:handle", "-q", "jobs")
    workers.hears("ValueError: once")

    assert workers.stops() == 0
    assert workers.log.count("message 1, delivery 1 of 1, failed") == 1
    events = [line for line in workers.log.splitlines() if "worker jobs/1" in line]
    assert len(events) == 4
    assert all(line.startswith("mine: worker jobs/1") for line in events)
