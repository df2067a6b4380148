"""A job as its user starts it, which is started again whenever it ends before it is to."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import subprocess
from pathlib import Path

import psutil

from tests.support.processes import ROOT, catches
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE, eventually

#: The processes of a job: the command, Java, a Python worker.
KINDS = ("command", "java", "python")


class Pipeline:
    """``shmq pipeline JOB FILE`` with all its processes: the command, Java, Python workers."""

    def __init__(self, namespace: str, job: str, config: Path) -> None:
        self.job = job
        self.starts = 0
        self.errors = config.with_suffix(".stderr")
        self._read_reply = config.with_suffix(".stdout")
        #: Stands in the environment of each of its processes.
        self._mark = str(config)
        self._shell = Shell(namespace)
        self._command = self._shell.command("pipeline", job, str(config))
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Start it, or start it again. What is left of the one before has ended then."""
        self._end()
        self.starts += 1
        with self.errors.open("ab") as errors, self._read_reply.open("wb") as said:
            self._process = psutil.Popen(
                self._command,
                env={**self._shell.environment(), "PYTHONPATH": str(ROOT), "SHMQ_SOAK": self._mark},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
            )

    def keep(self) -> None:
        """Start it again if it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self, kind: str, chance: random.Random) -> bool:
        """Kill a process of that kind; whether there was one."""
        there = self._kinds()[kind]
        with contextlib.suppress(psutil.NoSuchProcess):
            if there:
                chance.choice(there).kill()
                return True
        return False

    def kill_driver(self) -> None:
        """Kill the command and Java at once, which together are Spark's driver."""
        kinds = self._kinds()
        for process in (*kinds["java"], *kinds["command"]):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def kill_java(self) -> str:
        """Kill Java, so that the command ends: its exit code, and what it says of that."""
        assert self._process is not None
        before = len(self.errors.read_text())
        for process in self._kinds()["java"]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        code = self._process.wait(PATIENCE)
        told = self.errors.read_text()[before:].splitlines()
        return "\n".join([str(code), *(line for line in told if f"shmq: {self.job}: " not in line)])

    def stop(self) -> None:
        """Have it stop cleanly: what it has in hand is done, and acknowledged."""
        for _ in range(5):  # one that was hit a moment ago fails yet, and is started again
            self.keep()
            assert self._process is not None
            eventually(lambda: self._can_stop() or not self._runs(), "it is up")
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.send_signal(signal.SIGTERM)
            if self._process.wait(PATIENCE) == 0:
                said = self._read_reply.read_text()
                assert re.fullmatch(rf"{self.job}: stopped, [\d,]+ rows\n", said), said
                return
        raise AssertionError(f"{self.job} cannot be stopped: {self.errors.read_text()[-2000:]}")

    def close(self) -> None:
        """End all of it at once."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.kill()
        self._end()

    def _can_stop(self) -> bool:
        """Whether it notes SIGTERM, which ends it at once while Spark starts."""
        return self._process is not None and catches(self._process.pid, signal.SIGTERM)

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _family(self) -> list[psutil.Process]:
        """All that this command has started, also what has lost its parent."""
        assert self._process is not None
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SHMQ_SOAK") == self._mark:
                    found.append(process)
        return found

    def _kinds(self) -> dict[str, list[psutil.Process]]:
        kinds: dict[str, list[psutil.Process]] = {kind: [] for kind in KINDS}
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                if process.pid == (self._process and self._process.pid):
                    kinds["command"].append(process)
                elif process.name() == "java":
                    kinds["java"].append(process)
                else:
                    kinds["python"].append(process)
        return kinds

    def _end(self) -> None:
        """Wait until the processes of a command that has ended are gone, too."""
        if self._process is None:
            return
        self._process.wait(PATIENCE)
        _, alive = psutil.wait_procs(self._family(), timeout=30)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=PATIENCE)
        self._process = None
