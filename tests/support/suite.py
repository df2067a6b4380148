"""Runs the published tests of a framework with shmq in place of its own brokers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.processes import ROOT, environment
from tests.support.sources import source_of

#: How long one run of the tests may take, in seconds.
LIMIT = 240

#: The tests of each file that cannot be of another broker, and why.
Others = Mapping[str, Mapping[str, str]]


def run_suite(
    distribution: str, files: Others, target: str, place: Path, *, helper: str, ini: str = ""
) -> None:
    """Run those files of the distribution's tests on the target.

    Beside them are our fixtures as ``conftest.py``, and the module ``helper`` that they import.
    Fails if a test fails or is skipped, if none has run, or if one of the others is not there.
    """
    source = source_of(distribution) / "tests"
    ours = ROOT / f"tests/extras/{distribution}/prove/suite"
    suite = place / "tests"
    for name in files:
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, suite / name)
        ((suite / name).parent / "__init__.py").touch()
    (suite / "__init__.py").touch()
    shutil.copy(ours / helper, suite / helper)
    shutil.copy(ours / "fixtures.py", suite / "conftest.py")
    (place / "pytest.ini").write_text(f"[pytest]\n{ini}")
    others = [f"tests/{file}::{test}" for file, tests in files.items() for test in tests]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rsf", "--maxfail=3"]
        + [f"--deselect={test}" for test in others]
        + ["tests"],
        cwd=place,
        env=environment(SHMQ_SUITE_TARGET=target),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-20_000:]
    counts = {kind: int(n) for n, kind in re.findall(r"(\d+) (\w+)", run.stdout.splitlines()[-1])}
    assert counts.get("deselected", 0) >= len(others), "a test of the list is no longer there"
    assert "skipped" not in counts, run.stdout[-2000:]
    assert counts["passed"] > 0
