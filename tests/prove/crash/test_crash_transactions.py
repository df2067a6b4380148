"""SIGKILL after every single store to shared memory, through a commit: all of it, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prove.crash.conftest import ROOT, WATCHDOG
from tests.prove.crash.transaction_runner import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_death_at_any_store_shows_all_of_a_transaction_or_nothing(
    name: str, crash_build: Path
) -> None:
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("transaction_runner.py")), name],
        env={**os.environ, "PYTHONPATH": f"{crash_build}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[-2]) > 10, run.stdout
