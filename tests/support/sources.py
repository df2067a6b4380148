"""Source distributions of installed packages, whose own tests are run against this project."""

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

_SOURCES = ROOT / "build" / "sources"
_LIMIT = 300


@functools.cache
def source_of(distribution: str) -> Path:
    """The folder of the source distribution of the installed version, which pip downloads once.

    Skips the test, and says why, if the package is not installed or cannot be downloaded.
    """
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the package {distribution} is not installed")
    folder = _SOURCES / f"{distribution}-{version}"
    if not folder.is_dir():
        _SOURCES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_SOURCES) as aside:
            _unpack(_download(f"{distribution}=={version}", Path(aside)), Path(aside), folder)
    return folder


def _download(requirement: str, into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(into), requirement],
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not download the source of {requirement} within {_LIMIT} s")
    found = sorted(into.glob("*.tar.gz"))
    if done.returncode or not found:
        last = (done.stderr.strip() or "pip has left no file").splitlines()[-1]
        pytest.skip(f"pip cannot download the source of {requirement}: {last}")
    return found[0]


def _unpack(archive: Path, aside: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(aside / "unpacked", filter="data")
    (top,) = (aside / "unpacked").iterdir()
    try:
        top.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another test run was faster
            raise
