"""Starts a persistence writer as a detached process.

``shmq persist --detach`` does the rest: it leaves the session and the terminal, closes inherited
descriptors, and lets its parent return once the queues are recovered.
"""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
from pathlib import Path
from typing import Final

from shmq.errors import InvalidOption, ShmqError
from shmq.storage.disk import Disk

__all__ = ["IDLE", "chosen_idle", "launch"]

#: How long nothing durable may be in use before a writer that was started so ends, in seconds.
IDLE: Final = 60.0

_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*t?(\.exe)?\Z")
#: The folder that has this package.
_ROOT: Final = str(Path(__file__).resolve().parents[2])


def chosen_idle() -> float:
    """``SHMQ_AUTOSTART_IDLE`` in seconds, else `IDLE`. Raises :class:`~shmq.InvalidOption`."""
    told = os.environ.get("SHMQ_AUTOSTART_IDLE")
    if not told:
        return IDLE
    try:
        seconds = float(told)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds < 1e9:
        raise InvalidOption(f"SHMQ_AUTOSTART_IDLE={told!r} must be a number of seconds above 0")
    return seconds


def launch(namespace: str, directory: Path, timeout: float) -> None:
    """Start a writer, and return once it has recovered the directory.

    A writer that is not ready in time continues anyway. Raises :class:`~shmq.ShmqError` with the
    writer's error, and TimeoutError.
    """
    command = [
        *_interpreter(), "-m", "shmq", "-n", namespace, "persist", "--data-dir", str(directory),
        "--idle", f"{chosen_idle():g}s", "--detach",
    ]  # fmt: skip
    try:
        Disk(directory).make()  # fails early, before a process is started
    except OSError as error:
        raise ShmqError(
            f"data_dir={str(directory)!r} cannot be used: {error.strerror or error}"
        ) from error
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    except OSError as error:
        raise ShmqError(f"{sys.executable} cannot be run: {error.strerror or error}") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = lines[-1].removeprefix("shmq: ") if lines else f"it ended with {done.returncode}"
        raise ShmqError(said)


def _interpreter() -> list[str]:
    """The command of the interpreter. Raises ShmqError in a program that embeds Python."""
    if getattr(sys, "frozen", False) or not _PYTHON.match(Path(sys.executable or "none").name):
        raise ShmqError(f"this program ({sys.executable!r}) is no Python that could run it")
    return [sys.executable, "-P"]  # imports nothing from the current directory


def _environment() -> dict[str, str]:
    """This process's environment, with the package's path if Python would not find it."""
    known = [*site.getsitepackages(), site.getusersitepackages()]
    if _ROOT in known:
        return dict(os.environ)
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), _ROOT]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
