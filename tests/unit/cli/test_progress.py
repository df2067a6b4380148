"""How long steps are shown: when, where, and in which words."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator

import pytest

from shmq.cli.shared import progress as module
from shmq.cli.shared.output import note
from shmq.cli.shared.progress import Pace, progress
from shmq.cli.watch import sparkline
from tests.support.waiting import eventually
from tests.unit.cli.terminal import Terminal


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is written to stderr, a terminal for the rest of the test."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    return made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is shown from its beginning, and at each report."""
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setattr(module, "_ASK", 0.01)
    monkeypatch.setattr(module._Lines, "pause", 0.0)
    monkeypatch.setattr(module._Bar, "pause", 0.0)


def test_the_pace_is_that_of_the_last_half_minute() -> None:
    pace = Pace(0.0)
    for second in range(1, 101):
        pace.saw(second, second * 10 if second <= 50 else 500 + (second - 50) * 20)
    assert pace.rate(100.0) == pytest.approx(20, rel=0.1)
    assert pace.left(100.0, 1700) == pytest.approx(10, rel=0.1)


def test_nobody_knows_what_is_left_of_what_stands_still() -> None:
    pace = Pace(0.0)
    assert pace.left(5.0, 10) is None
    pace.saw(6.0, 2)
    assert pace.left(6.0, 10) == pytest.approx(24)
    assert pace.left(6.0, 1) == 0


def test_less_than_before_begins_anew() -> None:
    pace = Pace(0.0)
    pace.saw(1.0, 1000)
    pace.saw(2.0, 0)
    pace.saw(4.0, 10)
    assert pace.rate(4.0) == 5


def test_a_short_step_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    with progress("copy", "bytes") as told:
        told(1, 2)
    assert terminal.getvalue() == ""


def test_without_a_terminal_a_short_step_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("copy", "bytes") as told:
        told(1, 2)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_are_lines_on_stderr(
    at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("copy", "bytes", forks=True) as told:
        told(1 << 20, 4 << 20)
        told(0, what="check")
        told(3, text="three are odd")
    out, err = capsys.readouterr()
    assert out == ""
    first, second, third = err.splitlines()
    assert first.startswith("shmq: copy: 1.0 MiB of 4.0 MiB, ")
    assert "/s, 25 %, " in first
    assert first.endswith(" s left")
    assert second == "shmq: check: 0 s so far"
    assert third.startswith("shmq: check: three are odd, 3 bytes")


def test_lines_are_far_between(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    with progress("copy", "files", forks=True) as told:
        for number in range(100):
            told(number, 100)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_time_left_is_told_once_a_part_is_done(
    at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("verify", "bytes", forks=True) as told:
        told(704, 400 << 20)
        assert "left" not in capsys.readouterr().err
        told(8 << 20, 400 << 20)
        assert "left" in capsys.readouterr().err


@pytest.mark.parametrize(("quiet", "lines"), [(True, True), (False, False)])
def test_lines_can_be_silenced(
    at_once: None, capsys: pytest.CaptureFixture[str], quiet: bool, lines: bool
) -> None:
    with progress("copy", "files", quiet=quiet, lines=lines) as told:
        told(1, 2)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_there_is_a_bar_and_nothing_of_it_stays(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = terminal_for(monkeypatch)
    with progress("copy", "files") as told:
        told(1, 4)
        assert "copy: 1 of 4 files" in terminal.getvalue()
        assert "━" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")


def test_quiet_shows_no_bar(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    with progress("copy", "files", quiet=True) as told:
        told(1, 4)
    assert terminal.getvalue() == ""


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with progress("copy", "files", forks=True) as told:
        told(1, 4)
    assert terminal.getvalue().startswith("shmq: copy: 1 of 4 files")
    assert "\x1b" not in terminal.getvalue()


def test_the_bar_goes_away_with_an_error(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    with pytest.raises(KeyboardInterrupt), progress("copy", "files") as told:
        told(1, 4)
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith("\x1b[2K")
    assert sys.stderr is terminal
    assert "\x1b[?25h" in terminal.getvalue(), "the cursor is shown again"


def test_the_log_is_written_above_the_bar(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    log = logging.getLogger("shmq")
    handler = logging.StreamHandler()
    log.addHandler(handler)
    try:
        with progress("copy", "files") as told:
            told(1, 4)
            log.error("a line of the log")
            assert handler.stream is sys.stderr is not terminal
        assert handler.stream is terminal
    finally:
        log.removeHandler(handler)
    assert "a line of the log\n" in terminal.getvalue()


def test_a_note_is_written_above_the_bar(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    with progress("copy", "files", forks=True) as told:
        told(1, 4)
        note("it is late")
    assert "\x1b[2Kshmq: it is late" in terminal.getvalue()


def test_a_step_that_cannot_tell_is_asked(
    at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def shown() -> bool:
        seen.append(capsys.readouterr().err)
        return "purge: 7 of 9 messages" in "".join(seen)

    @contextlib.contextmanager
    def asked() -> Iterator[Callable[[], tuple[int, int]]]:
        yield lambda: (7, 9)

    with progress("purge", "messages", asked=asked):
        eventually(shown, "it was asked")


def test_a_question_that_fails_leaves_the_step_alone(
    at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def shown() -> bool:
        seen.append(capsys.readouterr().err)
        return "purge: 0 s so far" in "".join(seen)

    @contextlib.contextmanager
    def asked() -> Iterator[Callable[[], tuple[int, int]]]:
        raise OSError("nobody answers")
        yield

    with progress("purge", "messages", asked=asked):
        eventually(shown, "time is shown instead")
    assert "nobody answers" not in "".join(seen)


def test_a_sparkline_is_as_wide_as_asked_and_zero_is_its_lowest_bar() -> None:
    assert sparkline([], 4) == "    "
    assert sparkline([0, 0], 4) == "  ▁▁"
    assert sparkline([0, 1, 50, 100], 4) == "▁▂▅█"
    assert sparkline([100, 1, 2, 0, 4], 3) == "▅▁█"
    assert sparkline([1], 0) == ""
