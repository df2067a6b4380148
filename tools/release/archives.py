"""The sdist and the wheels: built aside, always with the same bytes from the same commit."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from shmq.api.contract import Closing

__all__ = ["Workshop", "kept", "reproduced", "run", "write_hashes"]


class Workshop(Closing):
    """A folder that all builds happen in, each in one of its own."""

    def __init__(self, root: Path, compiler: str) -> None:
        self._root = root
        self._folder = Path(tempfile.mkdtemp(prefix="shmq-release-"))
        settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
        self._environment = {
            **os.environ,
            **settings["linux"]["environment"],
            "SOURCE_DATE_EPOCH": _epoch(root),
            "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}",
        }
        self._compiler = {"CC": compiler, "CXX": compiler, "LDSHARED": f"{compiler} -shared"}

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def sdist(self) -> Path:
        """The sdist of what is committed, with the man pages."""
        source, target = self._fresh("source"), self._fresh("sdist")
        tar = subprocess.run(
            ["git", "archive", "HEAD"], cwd=self._root, check=True, capture_output=True
        ).stdout
        run("tar", "-xf", "-", cwd=source, input=tar)
        run(sys.executable, "-m", "tools.release.manual", source / "man", cwd=self._root)
        build = (sys.executable, "-m", "build", "--sdist", "--outdir", target, source)
        run(*build, env=self._environment)
        (made,) = target.iterdir()
        return made

    def wheel(self, sdist: Path, python: Path) -> Path:
        """The repaired wheel of that interpreter, built from the sdist with nothing else."""
        venv, built, repaired = self._fresh("venv"), self._fresh("built"), self._fresh("wheel")
        run(python, "-m", "venv", venv)
        pip = (venv / "bin/python", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
        options = ("--no-deps", "--no-cache-dir", "--wheel-dir", built)
        run(*pip, *options, sdist, env={**self._environment, **self._compiler})
        (plain,) = built.iterdir()
        repair = (sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, plain)
        run(*repair, env=self._environment)
        (made,) = repaired.iterdir()
        return made

    def _fresh(self, name: str) -> Path:
        """A folder with a path of its own, so that a path that gets into an archive is seen."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._folder))


def reproduced(what: str, build: Callable[[], Path], target: Path) -> Path:
    """Build it twice; it is kept if both have the same bytes."""
    first, second = build(), build()
    if _hash(first) != _hash(second):
        for each, name in ((first, "first"), (second, "second")):
            (target / name).mkdir()
            shutil.copy(each, target / name)
        raise SystemExit(f"two builds of {what} differ: compare {target}/first and {target}/second")
    return kept(first, target)


def kept(archive: Path, target: Path) -> Path:
    """The archive, in ``target``."""
    return Path(shutil.copy(archive, target))


def write_hashes(target: Path) -> None:
    """Write ``SHA256SUMS``, as ``sha256sum --check`` reads it."""
    files = sorted(path for path in target.iterdir() if path.name != "SHA256SUMS")
    text = "".join(f"{_hash(path)}  {path.name}\n" for path in files)
    (target / "SHA256SUMS").write_text(text)


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    input: bytes | None = None,
) -> str:
    """Run it for an hour at most; what it printed is shown if it fails."""
    words = [str(word) for word in command]
    ran = subprocess.run(
        words, cwd=cwd, env=env, input=input, capture_output=True, timeout=3600, check=False
    )
    if ran.returncode:
        told = (ran.stdout + ran.stderr).decode(errors="replace").splitlines()
        raise SystemExit(
            "\n".join(told[-40:]) + f"\n{' '.join(words)} failed with {ran.returncode}"
        )
    return ran.stdout.decode()


def _epoch(root: Path) -> str:
    """``SOURCE_DATE_EPOCH``, or the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run("git", "log", "-1", "--format=%ct", cwd=root).strip()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
