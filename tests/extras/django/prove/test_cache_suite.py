"""Django's own tests of a cache backend, with that of shmq."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment
from tests.support.sources import source_of

SUITE = ROOT / "tests/extras/django/prove/suite"

#: The tests that are skipped, each with the reason. Django skips them for its Redis backend, too.
SKIPPED = {
    "test_cull": "counts entries: MAX_ENTRIES",
    "test_zero_cull": "counts entries: MAX_ENTRIES",
    "test_cull_delete_when_store_empty": "counts entries: MAX_ENTRIES",
}


@pytest.mark.watchdog(300)
def test_djangos_own_tests_of_a_cache_pass(namespace: str, tmp_path: Path) -> None:
    shutil.copytree(source_of("django") / "tests" / "cache", tmp_path / "cache")
    shutil.copy(SUITE / "shmq_tests.py", tmp_path / "cache")
    shutil.copy(SUITE / "suite_settings.py", tmp_path)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "django", "test", "--settings", "suite_settings"),
            *("-v", "2", "cache.shmq_tests.ShmqCacheTests"),
        ],
        cwd=tmp_path,
        env=environment(
            SHMQ_SUITE_TARGET=f"shmq://{namespace}/cache", PYTHONPATH=f"{ROOT}:{tmp_path}"
        ),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = set(re.findall(r"\.(\w+)\)(?:\n.*)? \.\.\. skipped", done.stderr))
    assert skipped == set(SKIPPED), done.stderr
    (ran,) = re.findall(r"Ran (\d+) tests", done.stderr)
    assert int(ran) > 50, done.stderr
