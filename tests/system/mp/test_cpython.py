"""CPython's own tests of its queues, under every start method: see cpython_suite.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.processes import ROOT, environment

pytestmark = pytest.mark.prove


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_queues_pass_cpythons_tests(method: str) -> None:
    pytest.importorskip("test._test_multiprocessing", reason="Python came without its tests")

    run = subprocess.run(
        [sys.executable, "-m", "tests.system.mp.cpython_suite", method],
        cwd=ROOT,
        env=environment(SHMQ_MP_NAMESPACE=os.environ["SHMQ_MP_NAMESPACE"]),
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert re.search(r"^Ran (\d\d) tests", run.stderr, re.MULTILINE)
    assert re.search(r"^OK$", run.stderr, re.MULTILINE), run.stderr
