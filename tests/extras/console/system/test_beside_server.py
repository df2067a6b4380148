"""``shmq serve --console`` and ``--metrics``: the console is a process of the server."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.server import Server, serve
from tests.support.waiting import PATIENCE, eventually


def got(url: str) -> tuple[int, bytes]:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.status, answer.read()


def console_of(server: Server) -> tuple[int, str]:
    """The process id and the URL of the newest console."""
    server.hears(r"console started, pid \d+")
    server.hears(r"the console is at \S+/:", len(server.said(r"console started, pid (\d+)")))
    return int(server.said(r"console started, pid (\d+)")[-1]), server.said(
        r"the console is at (\S+)/:"
    )[-1]


def test_a_server_starts_a_console_replaces_it_and_ends_it_and_audits_its_changes(
    namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    flags = ("--console", "127.0.0.1:0", "--allow-changes", "--audit-log", str(file))
    with serve(namespace, flags=flags) as server:
        pid, url = console_of(server)
        assert json.loads(got(f"{url}/api/v1/overview")[1])["namespace"] == namespace
        psutil.Process(pid).kill()
        server.hears(r"console died", 1)
        eventually(lambda: console_of(server)[0] != pid, "another console is there")
        second, url = console_of(server)
        assert got(f"{url}/healthz") == (200, b"ok\n")
        asked = urllib.request.Request(
            f"{url}/api/v1/queues/orders",
            b"{}",
            {"X-Shmq-CSRF": "1", "Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            assert answer.status == 201
        (event,) = map(json.loads, file.read_text().splitlines())
        assert (event["event"], event["name"], event["via"]) == ("queue.create", "orders", "http")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        assert not psutil.pid_exists(second)


@pytest.mark.prove
def test_a_server_gives_its_metrics_alone(namespace: str) -> None:
    with serve(namespace, flags=("--metrics", "127.0.0.1:0")) as server:
        server.hears(r"metrics are at \S+/metrics")
        (url,) = server.said(r"metrics are at (\S+)/metrics")
        status, content = got(f"{url}/metrics")
        assert (status, content.endswith(b"# EOF\n")) == (200, True)
        missing: Any = None
        try:
            got(f"{url}/api/v1/overview")
        except urllib.error.HTTPError as error:
            missing = error
            error.close()
        assert missing is not None
        assert missing.code == 404
