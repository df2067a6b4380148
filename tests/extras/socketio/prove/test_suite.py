"""python-socketio's own tests of managers with other processes, with those of shmq."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment
from tests.support.sources import source_of


@pytest.mark.parametrize(
    ("folder", "theirs", "ours"),
    [
        ("common", "pubsub_manager.PubSubManager", "ShmqManager"),
        ("async", "async_pubsub_manager.AsyncPubSubManager", "AsyncShmqManager"),
    ],
)
def test_the_tests_of_python_socketio_pass(
    namespace: str, tmp_path: Path, folder: str, theirs: str, ours: str
) -> None:
    text = (source_of("python-socketio") / "tests" / folder / "test_pubsub_manager.py").read_text()
    assert theirs in text
    text = text.replace(f"{theirs}(", f"{ours}(")
    text = text.replace(
        "import pytest\n", f"import pytest\nfrom shmq.extras.socketio import {ours}\n", 1
    )
    (tmp_path / "test_pubsub_manager.py").write_text(text)
    shutil.copy(ROOT / "tests/extras/socketio/prove/suite/conftest.py", tmp_path)
    done = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"), str(tmp_path)],
        cwd=tmp_path,
        env=environment(SHMQ_NAMESPACE=namespace),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "skipped" not in last
    assert int(re.findall(r"(\d+) passed", last)[0]) > 40, last
