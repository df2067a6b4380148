"""The core on those platforms of the wheels that this machine is not: musl, and ARM with either.

All of it is compiled for each of them without a warning. With musl on this machine's processor its
own tests run, too; what is built for ARM is not run.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.prove

HERE = platform.machine()
CORE = sorted((ROOT / "shmq/core").rglob("*.c"))
TESTS = sorted((ROOT / "tests/c").glob("test_*.c"))
SHARED = sorted(set((ROOT / "tests/c").glob("*.c")) - set(TESTS))
ZIG = (sys.executable, "-m", "ziglang", "cc", "-target")
FLAGS = ("-std=gnu11", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-Ishmq/core")

#: For a step of the compiler, and for a program of the tests.
PATIENCE = 300.0


def run(*command: str | Path) -> None:
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ran.returncode == 0, f"{command[-1]}: {ran.stdout}{ran.stderr}"


def compiled(target: str, sources: list[Path], folder: Path) -> list[Path]:
    """The object of each source."""

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.relative_to(ROOT)}.o".replace("/", "-")
        run(*ZIG, target, *FLAGS, "-c", source, "-o", made)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(compile_one, sources))


@pytest.mark.parametrize("target", ["aarch64-linux-gnu.2.28", "aarch64-linux-musl"])
def test_the_core_is_compiled_without_a_warning_for_arm(tmp_path: Path, target: str) -> None:
    for made in compiled(target, CORE, tmp_path):
        machine = made.read_bytes()[18:20]
        assert machine == (183).to_bytes(2, "little"), made  # EM_AARCH64


@pytest.mark.skipif(HERE not in {"x86_64", "aarch64"}, reason=f"no wheels are built for {HERE}")
def test_the_core_passes_its_tests_with_musl(tmp_path: Path) -> None:
    target = f"{HERE}-linux-musl"
    shared = compiled(target, [*CORE, *SHARED], tmp_path)
    programs = [tmp_path / source.stem for source in TESTS]

    def link(program: Path, made: Path) -> None:
        run(*ZIG, target, "-static", "-pthread", made, *shared, "-o", program)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(link, programs, compiled(target, TESTS, tmp_path)))
    for program in programs:
        run(program)
