"""cachelib's own tests of a cache, with that of shmq."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment
from tests.support.sources import source_of

#: The mixins of cachelib's tests, and its data.
FILES = ("clear", "common", "delete_many_with_prefix", "has", "serializer", "conftest")


@pytest.mark.watchdog(300)
def test_cachelibs_own_tests_of_a_cache_pass(namespace: str, tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(source_of("cachelib") / "tests" / f"{name}.py", tmp_path)
    shutil.copy(ROOT / "tests/extras/cachelib/prove/suite/shmq_tests.py", tmp_path)
    # Its fixtures of servers need a package that starts them.
    (tmp_path / "xprocess.py").write_text("ProcessStarter = object\n")
    done = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"), "shmq_tests.py"],
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
    last = done.stdout.splitlines()[-1]
    assert "skipped" not in last
    assert int(re.findall(r"(\d+) passed", last)[0]) > 60, last
