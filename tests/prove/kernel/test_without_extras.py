"""The quick tests of the kernel pass in a copy of shmq without shmq/extras."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment

#: Tests of the kernel, and what the tests of the other transports are called.
TESTS = (
    "tests/unit/api",
    "tests/unit/client",
    "tests/unit/codec",
    "tests/unit/expression",
    "tests/unit/namespace",
    "tests/unit/protocol",
    "tests/unit/routing",
    "tests/unit/schema",
    "tests/conformance/test_put_get.py",
    "tests/conformance/test_lease.py",
    "tests/conformance/test_streams.py",
    "tests/conformance/test_tables.py",
    "tests/conformance/test_exchanges.py",
    "tests/system/cli/test_create.py",
)
OTHERS = "not nats and not http"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without its extras, and of their entry points, with its tests."""
    folder = tmp_path_factory.mktemp("kernel")
    skipped = shutil.ignore_patterns("__pycache__", "extras", "*.pyx", "*.c")
    shutil.copytree(ROOT / "shmq", folder / "shmq", ignore=skipped)
    skipped = shutil.ignore_patterns("__pycache__", "extras")
    for name in ("tests", "docs", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path in (folder / "tests").rglob("test_*.py"):
        if "shmq.extras" in path.read_text():
            path.unlink()
    metadata = folder / "shmq.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: shmq\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[console_scripts]\nshmq = shmq.cli.__main__:main\n")
    return folder


def run(kernel: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=kernel,
        env={**environment(), "PYTHONPATH": str(kernel)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.watchdog(900)
def test_the_kernels_tests_pass_without_the_extras(kernel: Path) -> None:
    done = run(kernel, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", OTHERS, *TESTS)
    assert not done.returncode, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 500, done.stdout


def test_the_command_offers_what_the_kernel_has(kernel: Path) -> None:
    said = run(kernel, "-m", "shmq", "--help").stdout
    assert "produce" in said
    assert importlib.metadata.entry_points(group="shmq.commands")
    for each in importlib.metadata.entry_points(group="shmq.commands"):
        assert not re.search(rf"\b{each.name}  ", said), each.name


def test_a_url_of_another_transport_is_refused_with_its_scheme(kernel: Path) -> None:
    code = "import shmq; shmq.connect('nats://127.0.0.1:4222')"
    done = run(kernel, "-c", code)
    assert "InvalidOption" in done.stderr
    assert "no transport for nats:// is installed" in done.stderr
