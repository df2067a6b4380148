"""SIGKILL after every single store to shared memory, through every operation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prove.crash import group_runner, scenarios, stream_runner, transaction_runner
from tests.prove.crash.conftest import ROOT, WATCHDOG

#: The scenarios of each runner, and the fewest stores that one of them has.
RUNNERS = {
    "group": (list(group_runner.SCENARIOS), 3),
    "queue": (list(scenarios.SCENARIOS), 1),
    "stream": (list(stream_runner.SCENARIOS), 1),
    "transaction": (transaction_runner.SCENARIOS, 11),
}


@pytest.mark.watchdog(WATCHDOG + 60)
@pytest.mark.parametrize(
    ("runner", "name"), [(runner, name) for runner, (names, _) in RUNNERS.items() for name in names]
)
def test_a_death_at_any_store_loses_doubles_and_leaks_nothing(
    runner: str, name: str, crash_build: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.prove.crash", runner, name],
        env={**os.environ, "PYTHONPATH": f"{crash_build}:{ROOT}"},
        cwd=crash_build,
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= RUNNERS[runner][1], run.stdout
