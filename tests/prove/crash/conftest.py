"""The build whose processes can be told to die after their k-th store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "crash"
WATCHDOG = 960


@pytest.fixture(scope="session")
def crash_build() -> Path:
    """The package, built so that it can be told to die after its k-th store."""
    built = BUILD / "lib"
    command = [sys.executable, "setup.py", "--quiet", "build"]
    subprocess.run(
        [*command, "--build-base", str(BUILD), "--build-lib", str(built)],
        cwd=ROOT,
        env={**os.environ, "SHMQ_CRASHPOINTS": "1", "SHMQ_OPTIMIZE": "0", "SHMQ_SANITIZE": ""},
        check=True,
        capture_output=True,
        timeout=WATCHDOG,
    )
    return built
