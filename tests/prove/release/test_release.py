"""What would be published is built as the release does it, twice, and used without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.prove


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is made of a commit")
@pytest.mark.watchdog(1200)  # it compiles everything twice
def test_a_release_is_reproducible_and_works_without_a_compiler(tmp_path: Path) -> None:
    target = tmp_path / "release"
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    command = [sys.executable, "-m", "tools.release", "--target", str(target)]

    run = subprocess.run(
        [*command, "--python", str(base)],
        cwd=ROOT,
        env={**os.environ, "SHMQ_OPTIMIZE": "0"},  # the same steps, in a third of the time
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "installed without a compiler" in run.stdout
    assert "shmq serve, ping, and a message over TCP" in run.stdout
    (wheel,) = target.glob("*.whl")
    assert "manylinux" in wheel.name
    (sdist,) = target.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
        times = {member.mtime for member in files}
    assert {"man/shmq.1", "SECURITY.md", "shmq/extras/console/pages/static/console.js"} <= names
    assert len(times) == 1
    bill = json.loads((target / "shmq.cdx.json").read_text())
    found = {component["name"] for component in bill["components"]}
    assert {"click", "msgpack", "rich", "uplot"} <= found
    assert not {"pip", "setuptools"} & found
    shutil.rmtree(target)
