"""A process that a test has started, and what it writes to its log."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from pathlib import Path

import psutil

from shmq.host.supervision.signals import SHOW_STACK
from tests.support.waiting import PATIENCE, eventually


class Logged:
    """Waits for what the process says in its log."""

    process: psutil.Popen | subprocess.Popen[bytes] | None
    _log: Path

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    def said(self, pattern: str) -> list[str]:
        """What its log has that matches the pattern."""
        return re.findall(pattern, self.log)

    def hears(self, pattern: str, times: int = 1) -> str:
        """Return the first match once the log has matched the pattern that many times."""

        def has_said() -> bool:
            has_ended = self.has_ended()  # asked first: what it wrote last is read below
            if len(self.said(pattern)) >= times:
                return True
            assert not has_ended, f"the process has ended: {self.log}"
            return False

        eventually(has_said, f"{times} times {pattern!r}")
        found = re.search(pattern, self.log)
        return found[0] if found else ""

    def has_ended(self) -> bool:
        """Whether nothing more will be written."""
        assert self.process is not None
        return self.process.poll() is not None

    def waits_for_end(self) -> int:
        """Return its exit code once it has ended; an error has what its processes do instead."""
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE)
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            raise AssertionError(f"the process has not ended: {self._stacks()}") from None

    def _stacks(self) -> str:
        """Its log, with what it and its processes do now."""
        assert self.process is not None
        for one in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(SHOW_STACK)
        time.sleep(1)
        return self.log
