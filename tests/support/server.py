"""A server for the tests: ``shmq serve`` as an operator starts it, and its log."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from shmq.server.config.tokens import hash_of
from tests.support.ended_processes import runs
from tests.support.logged import Logged
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE, eventually

#: Below those that the kernel gives to connections: ip(7), ip_local_port_range.
_FIXED_PORTS = range(10_000, 32_000)


def fixed_port() -> int:
    """A free port that stays the server's while it is restarted.

    The kernel gives it to no connection, not even to one of the clients that try to reach it.
    """
    while True:
        port = secrets.choice(_FIXED_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


#: How long the connections of a test's server may take to end, in seconds.
DRAIN = 1.0


class Server(Logged):
    """A supervisor and its processes, with settings in ``config`` and a log in ``log``.

    The command that starts it begins with ``before``.
    """

    process: psutil.Popen

    def __init__(
        self, folder: Path, namespace: str, settings: Mapping[str, Any], before: Sequence[str] = ()
    ) -> None:
        self.namespace = namespace
        self.before = before
        self.config = folder / "serve.toml"
        self._log = folder / "serve.log"
        self._persist = settings.get("persist", True)
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        """Write the configuration; `reload` makes a running server read it.

        ``tokens`` maps each token to its rights: ``{"produce": ["jobs*"], …}``.
        """
        limits = {"drain": DRAIN, **settings.pop("limits", {})}
        tokens = settings.pop("tokens", None) or {}
        rows = [
            {"name": f"token {n}", "hash": hash_of(token), **rights}
            for n, (token, rights) in enumerate(tokens.items())
        ]
        self.tls = bool(settings.get("tls"))
        usual = {"port": 0, "workers": 1, "persist": self._persist or "data_dir" in settings}
        table = {**usual, "limits": limits, "tokens": rows, **settings}
        self.config.touch(mode=0o600)
        self.config.write_text(_toml(table))

    def start(self, *flags: str, **more: str) -> None:
        """Start it; `ready` waits for it."""
        command = [*self.before, sys.executable, "-m", "shmq.cli", "serve"]
        with self._log.open("wb") as stderr:
            self.process = psutil.Popen(
                [*command, "-c", str(self.config), *flags],
                cwd=ROOT,
                env=environment(SHMQ_NAMESPACE=self.namespace, **more),
                stdin=subprocess.DEVNULL,
                stderr=stderr,
            )

    def ready(self) -> None:
        """Return once it accepts connections."""
        self.hears("listening on")

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    @property
    def url(self) -> str:
        (found,) = self.said(r"listening on (\S+):")
        return found

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def workers(self) -> list[int]:
        """The process ids of the running front-end workers, ordered by worker number."""
        started = re.findall(r"front end (\d+) started, pid (\d+)", self.log)
        latest = {int(number): int(pid) for number, pid in started}
        return [latest[number] for number in sorted(latest)]

    def children(self) -> list[int]:
        """The process ids of all its children."""
        return [int(pid) for pid in self.said(r"started, pid (\d+)")]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def reload(self, **settings: Any) -> None:
        """Let it read new settings, and return once it has."""
        before = len(self.said("settings (not )?reloaded"))
        self.configure(**settings)
        self.signal(signal.SIGHUP)
        self.hears("settings (not )?reloaded", before + 1)

    def restart(self, **settings: Any) -> None:
        """End it, and start it again with other settings."""
        assert self.stops() == 0, self.log
        self.configure(**settings)
        self.start()
        self.ready()

    def ends(self) -> int:
        """Wait for its end and that of its processes; returns its exit code."""
        code = self.waits_for_end()
        self.leaves_no_process()
        return code

    def stops(self) -> int:
        """Ask it to end, and wait for its end."""
        self.signal(signal.SIGTERM)
        return self.ends()

    def leaves_no_process(self) -> None:
        eventually(lambda: not any(map(runs, self.children())), "its processes end")

    def close(self) -> None:
        """End it and all of its processes by any means."""
        if not hasattr(self, "process"):
            return
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(psutil.TimeoutExpired):
                self.process.wait(PATIENCE / 4)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.leaves_no_process()


@contextlib.contextmanager
def serve(
    namespace: str,
    *,
    workers: int = 1,
    persist: bool | None = None,
    tokens: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    before: Sequence[str] = (),
    flags: Sequence[str] = (),
    **settings: Any,
) -> Iterator[Server]:
    """A server of the namespace's queues on a free port of this host, for the block.

    ``tokens`` maps each token to its rights (``{"produce": ["*"], "consume": ["*"]}``).
    ``settings`` are those of the configuration: ``limits={"idle": 1}``,
    ``tls={"certificate": path}``. The command begins with ``before`` and ends with ``flags``. The
    block ends the server as an operator does, and fails if the server does not end on its own.
    Unless ``persist`` says otherwise, it has a persistence writer only if it has a ``data_dir``:
    one more process takes its time to start.
    """
    persist = "data_dir" in settings if persist is None else persist
    with tempfile.TemporaryDirectory(prefix="shmq-serve-") as folder:
        table = {"workers": workers, "persist": persist, "tokens": tokens, **settings}
        server = Server(Path(folder), namespace, table, before)
        try:
            server.start(*flags)
            server.ready()
            yield server
            if server.process.poll() is None:
                assert server.stops() == 0, server.log
        finally:
            server.close()


def _toml(table: Mapping[str, Any], within: str = "") -> str:
    """The table as TOML: values first, then tables, then lists of tables."""
    plain, tables = "", ""
    for key, value in table.items():
        if isinstance(value, Mapping):
            tables += f"\n[{within}{key}]\n{_toml(value, f'{within}{key}.')}"
        elif isinstance(value, list) and all(isinstance(row, Mapping) for row in value):
            tables += "".join(f"\n[[{key}]]\n{_toml(row)}" for row in value)
        elif value is not None:
            plain += f"{key} = {_value(value)}\n"
    return plain + tables


def _value(value: Any) -> str:
    """The value as JSON, whose strings, numbers, booleans and lists are also TOML."""
    return json.dumps(os.fspath(value) if isinstance(value, os.PathLike) else value)
