"""A small disk of the soak's own, in a mount namespace, and what fills it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.processes import why_not

#: Runs a line of shell as the first process of namespaces of its own: with it ends all that it
#: started, and what it mounts.
_UNSHARE: Final = (
    "unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
    "sh", "-c",
)  # fmt: skip
_PIECES: Final = (1 << 20, 1 << 12)


def on_small_disk(directory: Path, size: int) -> tuple[str, ...]:
    """The command that runs another one, whose ``directory`` is a disk of ``size`` bytes.

    It has a /dev/shm of its own, too. The shell stays, and reaps the orphans.
    """
    mounts = (
        f"mount -t tmpfs -o size={size},mode=700 tmpfs '{directory}' && "
        "mount -t tmpfs tmpfs /dev/shm"
    )
    return (*_UNSHARE, f'{mounts} || exit 125; "$0" "$@"; exit $?')


def why_no_disk() -> str:
    """Why no disk can be mounted here; empty if one can."""
    return why_not(*_UNSHARE, "mount -t tmpfs -o size=64k tmpfs /dev/shm")


class Filler:
    """A file that takes all the room that a disk has left."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "filler"

    @contextlib.contextmanager
    def filling(self) -> Iterator[None]:
        """The disk is full when the block starts; `fill` takes what became free since."""
        try:
            self.fill()
            yield
        finally:
            self._path.unlink(missing_ok=True)

    def fill(self) -> None:
        """Take all that is free."""
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for piece in _PIECES:
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file, os.fstat(file).st_size, piece)
        finally:
            os.close(file)
