"""C programs that are compiled for a run."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "bench"
#: With the headers of the core: the load generator takes the numbers of the protocol from them.
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{ROOT}/shmq/core")


def no_compiler() -> str | None:
    """Why programs cannot be compiled; None if they can."""
    return None if shutil.which("cc") else "there is no C compiler called cc"


@cache
def compiled(source: Path, *flags: str) -> Path:
    """The program of a source file, or of a folder's files, compiled once per run.

    Raises CalledProcessError if it does not compile.
    """
    BUILT.mkdir(parents=True, exist_ok=True)
    target = BUILT / source.stem
    files = sorted(map(str, source.glob("*.c"))) if source.is_dir() else [str(source)]
    made = target.with_name(f"{target.name}-{os.getpid()}")
    subprocess.run(["cc", *FLAGS, *flags, *files, "-o", str(made)], check=True)
    return made.replace(target)  # another run may be running the one before
