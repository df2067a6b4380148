"""SIGKILL after every single store to shared memory, through every operation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "crash"
WATCHDOG = 300


@pytest.fixture(scope="session")
def crash_build() -> Path:
    """The package, built so that it can be told to die after its k-th store."""
    built = BUILD / "lib"
    command = [sys.executable, "setup.py", "--quiet", "build"]
    subprocess.run(
        [*command, "--build-base", str(BUILD), "--build-lib", str(built)],
        cwd=ROOT,
        env={**os.environ, "SHMQ_CRASHPOINTS": "1", "SHMQ_SANITIZE": ""},
        check=True,
        capture_output=True,
        timeout=WATCHDOG,
    )
    return built


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_death_at_any_store_loses_doubles_and_leaks_nothing(name: str, crash_build: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("runner.py")), name],
        env={**os.environ, "PYTHONPATH": f"{crash_build}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    points = int(run.stdout.split()[-2])
    assert points > 0, run.stdout
