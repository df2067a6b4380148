"""A process that a test has started, and what it writes to its log."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import psutil

from tests.support.waiting import eventually


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
