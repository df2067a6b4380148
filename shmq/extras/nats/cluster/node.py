"""One server of a cluster on this host: its configuration, its files, and its process."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from shmq.errors import ShmqError
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file
from shmq.native.directories import make_directory

#: How often a process is looked at while it is waited for, in seconds.
_LOOK: Final = 0.02
#: How much of the log an error shows, in bytes.
_TAIL: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a server: for clients, for its peers, for its monitor, for leaf nodes."""

    client: int
    peer: int
    monitor: int
    leaf: int


class Node:
    """A server whose configuration, log, data and process id are in ``folder``."""

    def __init__(self, name: str, folder: Path, ports: Ports) -> None:
        self.name = name
        self.folder = folder
        self.ports = ports
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.ports.client}"

    @property
    def monitor(self) -> str:
        """The base of its monitor's pages."""
        return f"http://127.0.0.1:{self.ports.monitor}"

    @property
    def pid(self) -> int | None:
        """The process, or None if it does not run; a stopped one runs."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        try:
            pid = int(self._pid_file.read_text())
            command = psutil.Process(pid).cmdline()
        except (OSError, ValueError, psutil.Error):
            return None
        return pid if str(self._config) in command else None

    def configure(self, text: str) -> None:
        """Write its configuration."""
        make_directory(self.folder)
        with open(self._config, "w", opener=_open_private) as file:
            file.write(text)

    def start(self, binary: Path, prefix: Sequence[str] = ()) -> None:
        """Start the process, behind ``prefix``. Raises ShmqError if it runs already."""
        if self.pid is not None:
            raise ShmqError(f"{self.name} runs already, pid {self.pid}: stop it first")
        with open(self.log, "ab", opener=_open_private) as log:
            reserve_standard()
            self._child = subprocess.Popen(
                [*prefix, binary, "-c", self._config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        with open(self._pid_file, "w", opener=_open_private) as file:
            file.write(f"{self._child.pid}\n")

    def _send(self, *numbers: int) -> None:
        """Send the process signals. Raises ShmqError if it does not run."""
        pid = self.pid
        if pid is None:
            raise ShmqError(f"{self.name} does not run: see {self.log}")
        with contextlib.suppress(ProcessLookupError):
            for number in numbers:
                os.kill(pid, number)

    def stop(self, timeout: float = 10.0) -> None:
        """End the process in order, and after ``timeout`` seconds by force."""
        for number, patience in ((signal.SIGTERM, timeout), (signal.SIGKILL, timeout)):
            if self.pid is None:
                return
            self._send(number, signal.SIGCONT)
            if self.wait(patience):
                return
        raise ShmqError(f"{self.name}, pid {self.pid}, did not end within {2 * timeout:g} s")

    def kill(self, timeout: float = 10.0) -> None:
        """Kill the process, and wait until it is gone."""
        self._send(signal.SIGKILL)
        if not self.wait(timeout):
            raise ShmqError(f"{self.name}, pid {self.pid}, was killed and did not end")

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: its connections stay open, and nothing answers."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._send(signal.SIGCONT)

    def wait(self, timeout: float) -> bool:
        """Whether the process ended within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.pid is not None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK)
        return True

    def last_error(self) -> str:
        """The last line of the log that tells of an error; empty if none does."""
        try:
            text = self.log.read_bytes()[-_TAIL:].decode("utf-8", "replace")
        except OSError:
            return ""
        bad = [line for line in text.splitlines() if "[FTL]" in line or "[ERR]" in line]
        return bad[-1].strip() if bad else ""

    @property
    def log(self) -> Path:
        """The file of its log."""
        return self.folder / "server.log"

    @property
    def _config(self) -> Path:
        return self.folder / "nats.conf"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"


def _open_private(path: str, flags: int) -> int:
    return open_file(path, flags, 0o600)


def quote_value(value: Any) -> str:
    """A text as a value of the configuration."""
    return json.dumps(str(value))
