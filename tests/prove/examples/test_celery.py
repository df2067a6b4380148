"""The example of Celery with a worker, beat, Flower and a client, as its page starts them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.celery_worker import CeleryProcess, celery, celery_environment
from tests.support.processes import ROOT
from tests.support.server import fixed_port
from tests.support.waiting import PATIENCE, eventually

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

FOLDER = ROOT / "examples" / "celery"


@pytest.fixture
def variables(namespace: str) -> dict[str, str]:
    path = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"SHMQ_NAMESPACE": namespace, "PYTHONPATH": path}


@contextlib.contextmanager
def worker(variables: dict[str, str]) -> Iterator[CeleryProcess]:
    arguments = ("worker", "--concurrency", "2", "-E", "-l", "info")
    with celery(*arguments, app="orders", **variables) as started:
        started.hears("ready")
        yield started


def test_the_client_prints_what_the_page_says(variables: dict[str, str]) -> None:
    page = (FOLDER / "README.md").read_text()
    shown = page.partition("prints\n\n")[2].partition("\n\n|")[0]
    with worker(variables):
        done = subprocess.run(
            [sys.executable, "place.py"],
            cwd=FOLDER,
            env=celery_environment(**variables),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.stdout.split() == shown.split(), done.stderr


def test_beat_sends_the_report(variables: dict[str, str], tmp_path: Path) -> None:
    schedule = ("--schedule", str(tmp_path / "beat"))
    with worker(variables) as started, celery("beat", *schedule, app="orders", **variables):
        started.hears(r"orders\.total\[.*succeeded in .*: '3 dishes in 0\.15 s'")


def test_flower_shows_workers_and_tasks(variables: dict[str, str]) -> None:
    pytest.importorskip("flower", reason="the package flower is not installed")
    port = fixed_port()
    arguments = ("flower", "--address=127.0.0.1", f"--port={port}")
    more = {**variables, "FLOWER_UNAUTHENTICATED_API": "true"}

    def ask(path: str) -> Any:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer,
        ):
            return answer.read()
        return b""

    def tasks() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(ask("/api/tasks") or "{}")
        return found

    with worker(variables), celery(*arguments, app="orders", **more) as flower:
        flower.hears("Connected to shmq")
        eventually(lambda: bool(json.loads(ask("/api/workers?refresh=1") or "{}")), "a worker")
        subprocess.run(
            [sys.executable, "place.py"],
            cwd=FOLDER,
            env=celery_environment(**variables),
            check=True,
            timeout=PATIENCE,
            stdout=subprocess.DEVNULL,
        )
        eventually(
            lambda: any(task["state"] == "SUCCESS" for task in tasks().values()), "a task succeeds"
        )
        assert b"<html" in ask("/tasks")
