"""How the command shows the progress of a job."""

from __future__ import annotations

import sys

import pytest

from shmq.cli.pipeline import _show_progress
from shmq.cli.shared import progress as module

pytest.importorskip("msgspec")

from shmq.spark.jobs.job import Progress
from tests.unit.cli.terminal import Terminal

DONE = Progress(batch=3, rows=1200, rate=600.0, backlog=300, seconds=2.0, counts={"late": 1})
LINE = "archive: batch 3, 1,200 rows, 600 rows/s, backlog 300, 2.0 s a batch, 1 late, 80 %"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setattr(module._Bar, "pause", 0.0)


def test_without_a_terminal_there_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with _show_progress("archive", quiet=False) as report:
        for _ in range(3):
            report(DONE)

    assert capsys.readouterr().err == "shmq: archive: starting Spark\n"


def test_a_line_says_how_far_the_job_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._Lines, "pause", 0.0)
    with _show_progress("archive", quiet=False) as report:
        report(DONE)

    assert f"shmq: {LINE}, " in capsys.readouterr().err


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")

    with _show_progress("archive", quiet=False) as report:
        report(DONE)

    text = terminal.getvalue()
    assert "archive: starting Spark" in text
    assert LINE in text
    assert "━" in text
    assert text.endswith("\x1b[2K"), "nothing of it stays"


def test_quiet_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    with _show_progress("archive", quiet=True) as report:
        report(DONE)

    assert terminal.getvalue() == ""
