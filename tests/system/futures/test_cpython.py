"""CPython's own tests of its process pool, under every start method: see cpython_suite.py."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment

pytestmark = pytest.mark.prove

SUITE = "test_concurrent_futures"
#: Where Debian's package libpython3.*-testsuite has the tests of that version.
DEBIAN = Path(f"/usr/lib/python{sys.version_info.major}.{sys.version_info.minor}/test")


@pytest.mark.watchdog(1800)
def test_the_pool_passes_cpythons_tests(tmp_path: Path) -> None:
    if importlib.util.find_spec(f"test.{SUITE}") is None:
        if not any(DEBIAN.glob(f"{SUITE}*")):
            pytest.skip(
                f"Python came without its tests: apt-get install lib{DEBIAN.parent.name}-testsuite"
            )
        (tmp_path / "test").symlink_to(DEBIAN)  # alone: not its standard library

    run = subprocess.run(
        [sys.executable, "-m", "tests.system.futures.cpython_suite"],
        cwd=ROOT,
        env=environment(
            SHMQ_MP_NAMESPACE=os.environ["SHMQ_MP_NAMESPACE"],
            PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))),
        ),
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert re.search(r"^Ran \d{2,3} tests", run.stderr, re.MULTILINE)
    assert re.search(r"^OK", run.stderr, re.MULTILINE), run.stderr
