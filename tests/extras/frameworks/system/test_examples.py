"""The examples of task frameworks run, with the frameworks' own commands as workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.examples import command, printed

#: The thumbnails that both examples print.
THUMBNAILS = [f"picture-{number}@100" for number in range(20)]

#: What each command writes when it may be sent a signal.
DRAMATIQ_RUNS = "ready for action"
TASKIQ_RUNS = "Listening started"


@pytest.mark.prove
def test_the_example_of_dramatiq_runs_and_its_worker_reloads_and_ends(
    namespace: str, tmp_path: Path
) -> None:
    arguments = ("-m", "dramatiq", "app", "--processes", "2", "--threads", "4")
    with command("dramatiq", namespace, tmp_path / "log", *arguments) as worker:
        worker.says(DRAMATIQ_RUNS, 2)
        assert printed("dramatiq", namespace) == THUMBNAILS
        worker.process.send_signal(signal.SIGHUP)
        worker.says(DRAMATIQ_RUNS, 4)
        assert printed("dramatiq", namespace) == THUMBNAILS
        assert worker.ends() == 0, worker.log()


@pytest.mark.prove
def test_the_example_of_taskiq_runs_with_two_schedulers_and_its_worker_ends(
    namespace: str, tmp_path: Path
) -> None:
    workers = ("-m", "taskiq", "worker", "app:broker", "--workers", "2")
    scheduler = ("-m", "taskiq", "scheduler", "app:scheduler", "--update-interval", "1")
    with (
        command("taskiq", namespace, tmp_path / "worker", *workers) as worker,
        command("taskiq", namespace, tmp_path / "first", *scheduler) as first,
        command("taskiq", namespace, tmp_path / "second", *scheduler) as second,
    ):
        worker.says(TASKIQ_RUNS, 2)
        assert printed("taskiq", namespace) == [*THUMBNAILS, "scheduled@100"]
        assert worker.log().count("with ID: later") == 1
        assert worker.ends() == 0, worker.log()
        for each in (first, second):
            each.ends(signal.SIGINT)
