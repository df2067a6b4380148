"""The sdist and the wheels: built aside, always with the same bytes from the same commit."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shmq.api.contract import Closing

#: A step that takes longer says so, each time so many seconds have passed.
SILENCE: Final = 15.0
#: No step takes longer, in seconds.
_LONGEST: Final = 3600.0


def say(line: str) -> None:
    """Print it at once."""
    sys.stdout.write(f"release: {line}\n")
    sys.stdout.flush()


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
        run(*build, env=self._environment, step="the sdist")
        (made,) = target.iterdir()
        return made

    def wheel(self, sdist: Path, python: Path) -> Path:
        """The repaired wheel of that interpreter, built from the sdist with nothing else."""
        venv, built, repaired = self._fresh("venv"), self._fresh("built"), self._fresh("wheel")
        run(python, "-m", "venv", venv)
        pip = (venv / "bin/python", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
        options = ("--no-deps", "--no-cache-dir", "--wheel-dir", built)
        compiler = {**self._environment, **self._compiler}
        run(*pip, *options, sdist, env=compiler, step=f"compiling for {python}")
        (plain,) = built.iterdir()
        repair = (sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, plain)
        run(*repair, env=self._environment, step=f"repairing {plain.name}")
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
    step: str = "",
) -> str:
    """Run it for an hour at most; what it printed is shown if it fails.

    A ``step`` is told when it begins, and again for as long as it lasts.
    """
    words = [str(word) for word in command]
    if step:
        say(f"{step} …")
    with subprocess.Popen(
        words,
        cwd=cwd,
        env=env,
        stdin=None if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            out, errors = _waited(process, input, step)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        told = (out + errors).decode(errors="replace").splitlines()
        raise SystemExit(
            "\n".join(told[-40:]) + f"\n{' '.join(words)} failed with {process.returncode}"
        )
    return out.decode()


def _waited(
    process: subprocess.Popen[bytes], given: bytes | None, step: str
) -> tuple[bytes, bytes]:
    """What it printed, once it ends."""
    begun = time.monotonic()
    while (past := time.monotonic() - begun) < _LONGEST:
        try:
            return process.communicate(given, timeout=SILENCE)
        except subprocess.TimeoutExpired:
            given = None  # it is being sent
            if step:
                say(f"{step}: {past + SILENCE:.0f} s")
    raise SystemExit(f"{process.args!r} did not end within {_LONGEST:g} s")


def _epoch(root: Path) -> str:
    """``SOURCE_DATE_EPOCH``, or the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run("git", "log", "-1", "--format=%ct", cwd=root).strip()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
