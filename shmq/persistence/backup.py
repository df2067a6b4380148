"""A copy of a namespace's durable queues, taken while they are used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shmq.errors import ShmqError
from shmq.persistence.control import CutFile, ask_for_cut, ask_for_snapshots
from shmq.persistence.disk import Disk
from shmq.persistence.writing import write_whole

__all__ = ["Saved", "backup"]

_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Saved:
    """A queue of the backup."""

    queue: str
    files: int
    bytes: int


def backup(directory: Path, queues: Sequence[str], target: Path) -> list[Saved]:
    """Copy what the queues, written in ``directory``, hold at one moment to ``target``.

    A fresh snapshot of each is made, so that the copy is small; the journals since then
    complete it, up to one moment for all. ``target`` must not exist, or be empty; it is
    there under its name when it is whole, and on disk. Raises
    :class:`~shmq.ShmqError`.
    """
    target = target.absolute()
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ShmqError(f"{target} is there already: name a directory that is not, or empty")
        for name, error in ask_for_snapshots(directory, list(queues)):
            if error is not None:
                raise ShmqError(f"queue {name!r} cannot be backed up: {error}")
        files = ask_for_cut(directory, list(queues))
        try:
            return _write(files, target)
        finally:
            for file in files:
                os.close(file.descriptor)
    except OSError as error:
        where = error.filename or target
        raise ShmqError(f"no backup was made: {where}: {error.strerror}") from error


def _write(files: Sequence[CutFile], target: Path) -> list[Saved]:
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    disk = Disk(unfinished)
    disk.make()
    try:
        for file in files:
            _copy(disk, file)
        disk.sync_directory()
        disk.path("").rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    Disk(target.parent).sync_directory()
    saved: dict[str, list[int]] = {}
    for file in files:
        saved.setdefault(file.queue, []).append(file.bytes)
    return [Saved(queue, len(sizes), sum(sizes)) for queue, sizes in saved.items()]


def _copy(disk: Disk, file: CutFile) -> None:
    made = disk.create(file.name)
    try:
        at = 0
        while at < file.bytes:
            piece = os.pread(file.descriptor, min(_PIECE, file.bytes - at), at)
            if not piece:
                raise ShmqError(f"{file.name} ends at {at} of {file.bytes} bytes: try again")
            at = write_whole(disk, made, [piece], at)
        disk.sync(made)
    finally:
        disk.close(made)
