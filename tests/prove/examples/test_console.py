"""The demonstration with a console beside it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

import pytest

from tests.prove.examples.test_command import COMMAND, WATCHDOG, needs_flights, queues_of
from tests.support.processes import ROOT


def overview(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/overview", timeout=WATCHDOG) as answer:
        return json.load(answer)


def line_with(pattern: str, stdout: IO[str]) -> re.Match[str]:
    """The first line with the pattern."""
    for line in stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"the demonstration ended without {pattern}")


@contextlib.contextmanager
def held(process: subprocess.Popen[str]) -> Iterator[None]:
    """The main process is stopped, so that the demonstration runs on after the block."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@needs_flights
def test_a_console_shows_the_queues_while_it_runs_and_ends_with_it(namespace: str) -> None:
    with subprocess.Popen(
        (*COMMAND, "--flights", "20000", "--no-spark", "--console", "--namespace", namespace),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        url = line_with(r"the console is at (http://127\.0\.0\.1:\d+)/", process.stdout)[1]
        with held(process):
            assert overview(url)["namespace"] == namespace
        line_with("back from its journal", process.stdout)
        with held(process):
            assert overview(url)["namespace"] == namespace
        out, err = process.communicate(timeout=WATCHDOG)
    assert (process.returncode, err) == (0, "")
    assert "20,000 acknowledged, none lost" in out
    with pytest.raises(urllib.error.URLError):
        overview(url)
    assert queues_of(namespace) == []


@pytest.mark.parametrize(("given", "shown"), [("1", True), ("0", False), ("", False)])
def test_make_demo_has_a_console_only_if_it_is_asked_for(given: str, shown: bool) -> None:
    said = subprocess.run(
        ("make", "--dry-run", "demo", f"CONSOLE={given}", f"PYTHON={sys.executable}"),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WATCHDOG,
        check=True,
    ).stdout
    (line,) = (one for one in said.splitlines() if "examples.flights" in one)
    assert line.endswith(" --console") is shown
