"""A wheel in an environment of its own, used without a compiler."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shmq.api.contract import Closing
from tools.release.archives import run

#: What must not be found.
COMPILERS = ("cc", "gcc", "c99", "clang", "tcc", "x86_64-linux-gnu-gcc")

#: What pip needs of the environment.
_KEPT = ("PIP_CONFIG_FILE", "PIP_INDEX_URL", "SSL_CERT_FILE")

_SCRIPT = Path(__file__).with_name("in_use.py")


class Environment(Closing):
    """A virtual environment with the wheel in it, and nothing else on the path."""

    def __init__(self, python: Path, wheel: Path) -> None:
        self._wheel = wheel
        self._folder = Path(tempfile.mkdtemp(prefix="shmq-trial-"))
        run(python, "-m", "venv", self._folder / "venv")
        self.python = self._folder / "venv/bin/python"
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._environment = {
            **kept,
            "HOME": str(self._folder),
            "PATH": str(self.python.parent),
            "SHMQ_NAMESPACE": f"trial-{os.getpid()}",
            "SHMQ_DATA_DIR": str(self._folder / "data"),
        }
        for name in COMPILERS:
            assert shutil.which(name, path=self._environment["PATH"]) is None, name

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def steps(self) -> Iterator[str]:
        """Install, and use; a line about each."""
        pip = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        step = f"installing {self._wheel.name}"
        self._run(*pip, "--only-binary", ":all:", self._wheel, step=step)
        self._run(self.python, "-m", "pip", "check")
        yield "installed without a compiler"
        yield self._run(self.python.parent / "shmq", "--version").strip()
        yield from self._run(self.python, _SCRIPT, step="using it").splitlines()

    def _run(self, *command: str | Path, step: str = "") -> str:
        return run(*command, cwd=self._folder, env=self._environment, step=step)
