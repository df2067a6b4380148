"""Shared by the tests of the command: running it, and waiting for a condition."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on stderr."""
        lines = self.err.decode().splitlines()
        assert len(lines) == 1, f"not one line of error: {lines}"
        assert lines[0].startswith("shmq: "), lines[0]
        return lines[0].removeprefix("shmq: ")


class Shell:
    """Runs the command in separate processes, in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", code: int | None = 0) -> Ran:
        """Run the command to its end and check its exit code, unless that is None."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            check=False,
            env=self.environment(),
            timeout=PATIENCE,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert code is None or ran.code == code, ran
        return ran

    def command(self, *arguments: str | bytes) -> list[str | bytes]:
        return [sys.executable, "-m", "shmq.cli", *arguments]

    def environment(self) -> dict[str, str]:
        ours = (
            "SHMQ_AUDIT_LOG", "SHMQ_AUTOSTART", "SHMQ_AUTOSTART_IDLE", "SHMQ_DATA_DIR",
            "SHMQ_STATE_DIR",
        )  # fmt: skip
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("SHMQ_") or key in ours
        }
        return {**kept, "PYTHONPATH": str(ROOT), "SHMQ_NAMESPACE": self.namespace, "TERM": "xterm"}

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start the command; the end of the test kills it if it still runs."""
        started = subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            **{"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams},
        )
        self._started.append(started)
        return started

    def pipeline(self, line: str) -> Ran:
        """Run a line of bash in which ``shmq`` is the command."""
        shmq = f'shmq() {{ {sys.executable} -m shmq.cli "$@"; }}\n'
        done = subprocess.run(
            ["bash", "-c", shmq + line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=self.environment(),
            timeout=PATIENCE,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[bytes]) -> Ran:
    """Wait for the end of a started command, and read the rest of its output."""
    out, err = process.communicate(timeout=PATIENCE)
    return Ran(process.returncode, out or b"", err or b"")


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """A pseudo-terminal: the test's end and the command's."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Read the terminal until ``wanted`` appears on it."""
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE)
        assert ready, f"{wanted!r} never appeared, only {seen!r}"
        try:
            seen += os.read(descriptor, 4096)
        except OSError:
            raise AssertionError(f"{wanted!r} never appeared, only {seen!r}") from None
    return seen
