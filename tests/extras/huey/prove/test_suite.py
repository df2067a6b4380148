"""Huey's own tests of storages and of its API, with the storage of shmq."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment

SUITE = ROOT / "tests/extras/huey/prove/suite/shmq_tests.py"


@pytest.mark.watchdog(300)
def test_hueys_own_tests_pass(namespace: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(SUITE)],
        cwd=tmp_path,
        env=environment(SHMQ_SUITE_TARGET=namespace, PYTHONPATH=str(ROOT), HUEY_SLOW_TESTS="1"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "skipped" not in last
    assert int(re.findall(r"(\d+) passed", last)[0]) > 100, last
