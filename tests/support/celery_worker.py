"""Workers and other processes of Celery, as their users start them, for the tests."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.ended_processes import kill_groups
from tests.support.logged import Logged
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE

APP = "tests.support.celery_tasks"


@functools.cache
def entry_points() -> Path:
    """A folder for PYTHONPATH with the entry points of pyproject.toml, as an installation has them.

    The environment of the tests may have been installed from another state of the tree.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tempfile.TemporaryDirectory(prefix="shmq-entry-points-")
    _folders.append(folder)
    info = Path(folder.name, f"shmq-{project['version']}.dist-info")
    info.mkdir()
    version = f"Metadata-Version: 2.1\nName: shmq\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(version)
    rows: list[str] = []
    for group, points in project["entry-points"].items():
        rows += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(rows) + "\n")
    return Path(folder.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []


def celery_environment(**more: object) -> dict[str, str]:
    """The environment of a process that uses Celery."""
    made = environment(**more)
    made["PYTHONPATH"] = f"{entry_points()}{os.pathsep}{made['PYTHONPATH']}"
    made["PYTHONWARNINGS"] = "ignore"
    made["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{made['PATH']}"
    return made


class CeleryProcess(Logged):
    """A command of Celery that runs, and its log."""

    process: psutil.Popen

    def __init__(self, log: Path, arguments: Sequence[str], app: str, **more: object) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = psutil.Popen(
                [sys.executable, "-m", "celery", "-A", app, *arguments],
                cwd=ROOT,
                env=celery_environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pool(self) -> list[psutil.Process]:
        """The processes of a worker's pool."""
        return list(self.process.children())

    def stop(self) -> None:
        """End it as a service manager does."""
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log

    def kill(self) -> None:
        """Kill it, and nothing else: the processes of its pool notice it."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it and its children by any means."""
        kill_groups([self.process])


@contextlib.contextmanager
def celery(*arguments: str, app: str = APP, **more: object) -> Iterator[CeleryProcess]:
    """A command of Celery, such as ``worker -c 2``; ``more`` is for its environment."""
    try:
        importlib.metadata.version("celery")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package celery (the extra 'celery') is not installed")
    with tempfile.TemporaryDirectory() as folder:
        made = CeleryProcess(Path(folder, "log"), arguments, app, **more)
        try:
            yield made
        finally:
            made.close()


def recorded(path: Path) -> Counter[int]:
    """The numbers that tasks have recorded, each with how often."""
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()
