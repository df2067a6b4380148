"""The Pythons of this machine that a wheel can be built for."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Final

MACHINE: Final = platform.machine()

#: Where others than those of the path are: pyenv, uv, and what is installed by hand.
_PLACES: Final = ("~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin", "/opt/python*/bin")
_NAMES: Final = ("python3.11", "python3.12", "python3.13", "python3.14", "python3.14t")

#: Prints what tells an interpreter from others, if it has its headers and can make environments.
_QUESTION: Final = """
import ensurepip, os, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
print(sysconfig.get_config_var("SOABI") if os.path.exists(header) else "")
"""


def found() -> list[Path]:
    """One interpreter for each version from 3.11 to 3.14 and each kind, oldest first."""
    homes = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    for place in _PLACES:
        absolute = Path(place).expanduser()
        homes += sorted(Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor))))
    kinds: dict[str, Path] = {}
    for name in _NAMES:
        for home in homes:
            python = home / name
            kind = _kind(python) if python.is_file() else ""
            if kind and "pyenv/shims" not in str(python):
                kinds.setdefault(kind, python)
    return list(kinds.values())


def _kind(python: Path) -> str:
    run = subprocess.run([python, "-c", _QUESTION], capture_output=True, text=True, check=False)
    return run.stdout.strip()
