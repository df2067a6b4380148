"""SIGKILL after every single store to shared memory, through every operation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prove.crash import stream_runner
from tests.prove.crash.scenarios import SCENARIOS

ROOT = Path(__file__).parents[3]
WATCHDOG = 300


@pytest.mark.parametrize(
    ("runner", "name"),
    [
        *(("runner.py", name) for name in SCENARIOS),
        *(("stream_runner.py", name) for name in stream_runner.SCENARIOS),
    ],
)
def test_a_death_at_any_store_loses_doubles_and_leaks_nothing(
    runner: str, name: str, crash_build: Path
) -> None:
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(runner)), name],
        env={**os.environ, "PYTHONPATH": f"{crash_build}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    points = int(run.stdout.split()[-2])
    assert points > 0, run.stdout
