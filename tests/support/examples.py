"""The programs under examples/, each run in its folder as its user does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.ended_processes import kill_groups
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE, eventually

EXAMPLES = ROOT / "examples"

#: With the commands of this environment: dramatiq starts itself again as ``python``.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


class Command:
    """Python with these arguments in the folder of an example, and its log."""

    def __init__(
        self, example: str, namespace: str, log: Path, *arguments: str, **more: object
    ) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=EXAMPLES / example,
                env=environment(SHMQ_NAMESPACE=namespace, PATH=PATH, **more),
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
def command(
    example: str, namespace: str, log: Path, *arguments: str, **more: object
) -> Iterator[Command]:
    """The command, for the block; ``more`` is added to its environment."""
    running = Command(example, namespace, log, *arguments, **more)
    try:
        yield running
    finally:
        kill_groups([running.process])


def printed(
    example: str,
    namespace: str,
    *arguments: str,
    code: int = 0,
    timeout: float = PATIENCE,
    **more: object,
) -> list[str]:
    """The lines that ``app.py`` prints until it ends; those on stderr if ``code`` is another."""
    done = subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=EXAMPLES / example,
        env=environment(SHMQ_NAMESPACE=namespace, **more),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return (done.stderr if code else done.stdout).splitlines()
