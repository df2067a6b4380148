"""A console for the tests: ``shmq console`` as an operator starts it, and a client of its API."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from shmq.server.config.tokens import hash_of
from tests.support.logged import Logged
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE

API = "/api/v1"


class Reply(NamedTuple):
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        """The code of the problem details."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.json["code"])


class Console(Logged):
    """A running console, and one client of it: each request has a connection of its own."""

    process: subprocess.Popen[bytes]

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        #: The headers of each request.
        self.headers: dict[str, str] = {"X-Shmq-CSRF": "1"}

    @property
    def url(self) -> str:
        """Where it listens: ``http://127.0.0.1:PORT`` and its prefix."""
        return self.hears(r"https?://[^/\s]+[^\s]*/(?=: namespace)").rstrip("/")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
        **query: Any,
    ) -> Reply:
        """Send one request; a body that is not bytes is sent as JSON."""
        where = urlsplit(self.url)
        assert where.hostname is not None
        sent: dict[str, str | None] = {**self.headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=PATIENCE)
        try:
            asked = where.path + path + (f"?{urlencode(query)}" if query else "")
            connection.request(
                method,
                asked,
                content,
                {name: value for name, value in sent.items() if value is not None},
            )
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, named, answer.read())
        finally:
            connection.close()

    def api(self, method: str, path: str, body: Any = None, **query: Any) -> Reply:
        """Ask the API: a path below /api/v1."""
        return self.ask(method, API + path, body, **query)

    def stop(self) -> int:
        """End it as a service manager does; its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def console(
    target: str,
    *flags: str,
    changes: bool = True,
    tokens: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    **more: str,
) -> Iterator[Console]:
    """A console of a namespace or of a server's URL; ``tokens`` maps each token to its rights."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "shmq.cli"]
        command += ["--url", target] if "://" in target else ["-n", target]
        command += ["console", "--bind", "127.0.0.1:0", *flags]
        if changes:
            command.append("--allow-changes")
        if tokens is not None:
            command += ["--config", str(write_tokens(Path(folder), tokens))]
        log = Path(folder) / "console.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment(**more), stdin=subprocess.DEVNULL, stderr=stderr
            )
        made = Console(process, log)
        try:
            made.hears("console is at|metrics are at.*\n")
            yield made
            assert made.stop() == 0, made.log
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        assert "Traceback" not in made.log, made.log


def write_tokens(folder: Path, tokens: Mapping[str, Mapping[str, Sequence[str]]]) -> Path:
    """A configuration of a server with these tokens."""
    config = folder / "serve.toml"
    config.touch(mode=0o600)
    rows = []
    for number, (token, rights) in enumerate(tokens.items()):
        rows += ["[[tokens]]", f'name = "token {number}"', f'hash = "{hash_of(token)}"']
        rows += [f"{right} = {json.dumps(list(names))}" for right, names in rights.items()]
    config.write_text("\n".join(rows) + "\n")
    return config
