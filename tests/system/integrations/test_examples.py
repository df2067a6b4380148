"""The examples of task frameworks run, with the frameworks' own commands as workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE, ROOT, environment, eventually

EXAMPLES = ROOT / "examples"

#: With the commands of this environment: dramatiq starts itself again as ``python``.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

#: The thumbnails that both examples print.
THUMBNAILS = [f"picture-{number}@100" for number in range(20)]

#: What each command writes when it may be sent a signal.
DRAMATIQ_RUNS = "ready for action"
TASKIQ_RUNS = "Listening started"


class Command:
    """A command of a framework in the folder of its example, and its log."""

    def __init__(self, example: str, namespace: str, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=EXAMPLES / example,
                env=environment(SHMQ_NAMESPACE=namespace, PATH=PATH),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text()

    def says(self, words: str, times: int = 1) -> None:
        """Return once it has said that so often."""

        def said() -> bool:
            assert self.process.poll() is None, self.log()
            return self.log().count(words) >= times

        eventually(said, f"{times} times {words!r}")

    def ends(self, number: int = signal.SIGTERM) -> int:
        """Send the signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def command(example: str, namespace: str, log: Path, *arguments: str) -> Iterator[Command]:
    """The command, for the block."""
    running = Command(example, namespace, log, *arguments)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()


def printed(example: str, namespace: str) -> list[str]:
    """The lines that the example prints."""
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=EXAMPLES / example,
        env=environment(SHMQ_NAMESPACE=namespace),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.prove
def test_the_example_of_dramatiq_runs_and_its_worker_reloads_and_ends(
    namespace: str, tmp_path: Path
) -> None:
    arguments = ("dramatiq", "app", "--processes", "2", "--threads", "4")
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
    workers = ("taskiq", "worker", "app:broker", "--workers", "2")
    scheduler = ("taskiq", "scheduler", "app:scheduler", "--update-interval", "1")
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
