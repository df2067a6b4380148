"""A run that is ended at any moment ends what it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench.compiled import ROOT
from bench.ending import end_at_signals, unbroken
from bench.stage import Side, Stage, together

#: How long after the start the signal comes: the server of the sides takes longer to start.
EARLY = 0.05
#: How long a side that is left behind is waited for, in seconds.
LATE = 3.0


def touch(stage: Stage, path: str) -> None:
    """A side that leaves a file, unless it is killed first."""
    stage.meet()
    time.sleep(LATE / 3)
    Path(path).touch()


def end_while_a_side_starts(path: str) -> None:
    """Run :func:`touch`, and get SIGTERM from a thread while its process is being started."""
    end_at_signals()
    threading.Timer(EARLY, signal.pthread_kill, (threading.get_ident(), signal.SIGTERM)).start()
    try:
        together([Side(touch, path, core=None)])
    finally:
        time.sleep(LATE)


def test_a_side_that_is_being_started_when_the_run_is_ended_does_not_go_on(tmp_path: Path) -> None:
    left = tmp_path / "left"
    program = (
        "from tests.prove.bench.test_ending import end_while_a_side_starts as run\n"
        f"run({str(left)!r})"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == 128 + signal.SIGTERM
    assert not left.exists()


def test_a_signal_ends_an_unbroken_block_after_its_last_line() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with unbroken():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")
        done.append("never")
    assert done == ["all of it"]
