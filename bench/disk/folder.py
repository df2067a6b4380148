"""The folder of the measurements: on a real disk, and removed at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.compiled import BUILT
from bench.ending import unbroken

#: The variable that names another folder to measure in.
VARIABLE = "SHMQ_BENCH_DISK"
#: File systems without a disk, where a sync does nothing.
WITHOUT_DISK = {"tmpfs", "ramfs", "devtmpfs"}
#: Bytes that a whole run needs, with some margin.
ROOM = 8 << 30


def file_system(path: Path) -> str:
    """The kind of the file system that the folder is on: ``ext4``, for example."""
    where = path.resolve()
    mounts = [
        part for part in psutil.disk_partitions(all=True) if where.is_relative_to(part.mountpoint)
    ]
    if not mounts:
        return "unknown"
    # The last mount at a mount point hides the earlier ones.
    return max(reversed(mounts), key=lambda part: len(part.mountpoint)).fstype


def candidates() -> list[Path]:
    """The candidate folders, in order; only the named one if one is named."""
    named = os.environ.get(VARIABLE)
    if named:
        return [Path(named)]
    return [Path(tempfile.gettempdir()), Path("/var/tmp"), BUILT]


def missing() -> str | None:
    """Why measuring on a disk is impossible here; None if it is possible."""
    return (
        None
        if _chosen()
        else (
            f"none of {', '.join(map(str, candidates()))} is on a disk: name a folder "
            f"with {VARIABLE}"
        )
    )


def _chosen() -> Path | None:
    BUILT.mkdir(parents=True, exist_ok=True)
    for folder in candidates():
        if folder.is_dir() and file_system(folder) not in WITHOUT_DISK:
            return folder
    return None


def make() -> Path:
    """A new folder on a disk; the caller removes it."""
    chosen = _chosen()
    if chosen is None:
        raise OSError(missing())
    return Path(tempfile.mkdtemp(prefix=f"bench-{os.getpid()}-", dir=chosen))


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder on a disk, for the block."""
    with contextlib.ExitStack() as stack:
        with unbroken():
            folder = make()
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def describe() -> dict[str, str | int]:
    """The disk and file system of the run, for the head of its table."""
    chosen = _chosen()
    return (
        {"disk": f"{file_system(chosen)}, {psutil.disk_usage(str(chosen)).free >> 30} GiB free"}
        if chosen
        else {}
    )
