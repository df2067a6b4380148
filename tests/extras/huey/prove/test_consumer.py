"""Huey's own consumers: those of schedules, and one that is stopped in the middle of a task."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import pytest

from tests.support.task_workers import HUEY, is_drained, workers
from tests.support.waiting import PATIENCE, eventually


def test_scheduled_tasks_run_once_with_two_schedulers_of_which_one_is_killed(
    namespace: str, tmp_path: Path
) -> None:
    with workers(HUEY, namespace, tmp_path) as each:
        first, _ = each.start(), each.start()
        times = "run.schedule((number, False), delay=number / 50)"
        script = f"from {HUEY.app} import run\nfor number in range(200): {times}"
        assert each._start("-c", script).wait(PATIENCE) == 0
        each.has_run(20)
        first.kill()
        each.has_run(200)
        eventually(lambda: is_drained(namespace), each.logs())
        assert set(each.ledger.runs()) == set(range(200))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_task_whose_consumer_is_stopped_runs_again(
    namespace: str, tmp_path: Path, number: int
) -> None:
    with workers(HUEY, namespace, tmp_path) as each:
        first = each.start()
        assert each._start("-c", f"from {HUEY.app} import run; run(1, True)").wait(PATIENCE) == 0
        # Huey ignores a SIGTERM between taking a task and beginning it.
        eventually(each.ledger.has_waiting, "the task waits in a worker")
        each.children(first)
        first.send_signal(number)
        first.wait(PATIENCE)
        assert not is_drained(namespace)
        each.ledger.open()
        each.start()
        each.has_run(1)
        eventually(lambda: is_drained(namespace), each.logs())


@pytest.mark.parametrize("kind", ["thread", "greenlet"])
def test_workers_of_each_kind_run_tasks_and_end(namespace: str, tmp_path: Path, kind: str) -> None:
    module, *arguments = HUEY.worker[1:]
    patched = ("-m", "gevent.monkey", "--module") if kind == "greenlet" else ("-m",)
    worker = (*patched, module, *arguments, "--worker-type", kind)
    framework = dataclasses.replace(HUEY, worker=worker)
    with workers(framework, namespace, tmp_path) as each:
        each.ledger.open()
        consumer = each.start()
        assert each.send(100).wait(PATIENCE) == 0
        each.has_run(100)
        eventually(lambda: is_drained(namespace), each.logs())
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(PATIENCE) == 0, each.logs()
