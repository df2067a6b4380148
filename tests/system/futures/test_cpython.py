"""CPython's own tests of its process pool, under every start method: see cpython_suite.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.processes import ROOT, environment

pytestmark = pytest.mark.prove


def test_the_pool_passes_cpythons_tests() -> None:
    pytest.importorskip("test.test_concurrent_futures", reason="Python came without its tests")

    run = subprocess.run(
        [sys.executable, "-m", "tests.system.futures.cpython_suite"],
        cwd=ROOT,
        env=environment(SHMQ_MP_NAMESPACE=os.environ["SHMQ_MP_NAMESPACE"]),
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert re.search(r"^Ran \d{2,3} tests", run.stderr, re.MULTILINE)
    assert re.search(r"^OK", run.stderr, re.MULTILINE), run.stderr
