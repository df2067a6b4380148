"""Limits' own tests of storages and strategies, with the storages of shmq in place of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT, environment
from tests.support.sources import source_of

FILES = ("test_storage.py", "test_strategy.py", "aio/test_storage.py", "aio/test_strategy.py")

#: The tests that are not of these storages: a moving window is a list of times, which a table does
#: not change in one step, and `limits` reports that. The others are of other storages' URLs, and
#: the last one has a second for ten hits.
CHOSEN = (
    "in-shmq and not MovingWindow and not moving_window"
    " and (not fixed_window or empty_stats or multiple_cost)"
)

#: Those that limits marks as flaky compare times of a few ms, which a busy machine does not keep.
STEADY = "not flaky"

#: The tests of a moving window alone, which skip themselves.
SKIPPED = {"test_expiry_acquire_entry", "test_acquire_entry_custom_amount"}


def test_limits_own_tests_of_storages_pass(namespace: str, tmp_path: Path) -> None:
    suite = tmp_path / "tests"
    (suite / "aio").mkdir(parents=True)
    for folder in (suite, suite / "aio"):
        (folder / "__init__.py").touch()
    target = f"shmq://{namespace}/limits"
    for name in (*FILES, "utils.py"):
        text = (source_of("limits") / "tests" / name).read_text()
        (suite / name).write_text(_with_ours(text, target))
    shutil.copy(ROOT / "tests/extras/limits/prove/suite/conftest.py", suite)
    # Their fixtures of servers need a package that is not used here.
    (tmp_path / "pytest_lazy_fixtures.py").write_text("def lf(name): return None\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"),
            *("-k", CHOSEN, "-m", STEADY, "tests"),
        ],
        cwd=tmp_path,
        env=environment(SHMQ_SUITE_TARGET=target, PYTHONPATH=f"{tmp_path}:{ROOT}"),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert int(re.findall(r"(\d+) passed", last)[0]) > 20, last
    skipped = re.findall(r"(\d+) skipped", last)
    assert skipped == [str(2 * len(SKIPPED))], done.stdout


def _with_ours(text: str, target: str) -> str:
    """The text with our storages in place of those in memory."""
    text = text.replace('"memory://"', f'"{target}"')
    text = text.replace('"async+memory://"', f'"async+{target}"')
    text = text.replace('"in-memory"', '"in-shmq"')
    return re.sub(
        r"^from limits(\.aio)?\.storage import \((.*?)\n    MemoryStorage,",
        lambda found: (
            f"from shmq.extras.limits import {'Async' if found[1] else ''}ShmqStorage "
            f"as MemoryStorage\nfrom limits{found[1] or ''}.storage import ({found[2]}"
        ),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
