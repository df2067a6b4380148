"""The published sources of installed distributions, for the tests that these ship."""

from __future__ import annotations

import functools
import importlib.metadata
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests.support.processes import ROOT

#: Where they are unpacked, once for all runs.
SOURCES = ROOT / "build/sources"
#: How long pip may take, in seconds.
PATIENCE = 240


@functools.cache
def source_of(distribution: str) -> Path:
    """The unpacked source distribution of the installed version of ``distribution``.

    It is downloaded by pip, once. The test is skipped if that cannot be done.
    """
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: pip install 'shmq[test]'")
    folder = SOURCES / f"{distribution}-{version}"
    if not folder.is_dir():
        SOURCES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SOURCES) as place:
            _unpack(_downloaded(f"{distribution}=={version}", Path(place)), Path(place) / "tree")
            (unpacked,) = (Path(place) / "tree").iterdir()
            unpacked.rename(folder)
    return folder


def _downloaded(requirement: str, place: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--no-binary", ":all:", "--dest", str(place), requirement]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip has not downloaded the sources of {requirement} in {PATIENCE} s")
    found = sorted(place.glob("*.tar.gz"))
    if run.returncode or not found:
        last = (run.stderr.strip() or "no .tar.gz came").splitlines()[-1]
        pytest.skip(f"the sources of {requirement} could not be downloaded: {last}")
    return found[0]


def _unpack(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
