"""Ensures that exchanges, bindings and schemas are written to disk and recovered from it.

They are kept in the data directory of their namespace, if it has one or a writer of its queues
runs. A process that changes them asks the writer to write them, and waits for that.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmq.client.shared import durability
from shmq.errors import DurabilityWarning, NotConfirmed, ShmqError
from shmq.namespace.namespace import Namespace
from shmq.storage.inventory import LOCK
from shmq.storage.paths import EXCHANGES, SCHEMAS

__all__ = ["bring_back_exchanges", "bring_back_schemas", "on_disk"]

#: How long to wait for the writer, in seconds: usually, and in a process that serves clients.
_PATIENCE: Final = 10.0
_BRIEF: Final = 2.0
#: How long to wait for a missing directory, in seconds: its writer creates it at once.
_MADE: Final = 1.0
_LOOK: Final = 0.01

_within = threading.local()
#: Directories invisible to this process: the writer is in another mount namespace.
_unseen: set[Path] = set()


@contextlib.contextmanager
def on_disk(namespace: Namespace) -> Iterator[None]:
    """Write the block's changes of exchanges and schemas to disk before it ends.

    In a namespace with neither a writer nor a data directory they are in memory only; if there is a
    directory, and no writer can be started, a DurabilityWarning is issued. The caller must not hold
    the registry lock. Raises :class:`~shmq.ShmqError` before the block if its changes would hide
    data on disk, and :class:`~shmq.NotConfirmed` after it.
    """
    if getattr(_within, "depth", 0):
        yield
        return
    kept = _is_kept(namespace)
    _within.depth = 1
    try:
        yield
    finally:
        _within.depth = 0
    if kept:
        _confirm(namespace)


def bring_back_exchanges(namespace: Namespace) -> None:
    """Recover the exchanges that are only on disk. Raises ShmqError."""
    _bring_back(namespace, namespace.exchanges_path, EXCHANGES, "exchanges")


def bring_back_schemas(namespace: Namespace) -> None:
    """Recover the schemas that are only on disk. Raises ShmqError."""
    _bring_back(namespace, namespace.schemas_path, SCHEMAS, "schemas")


def _bring_back(namespace: Namespace, path: Path, file: str, what: str) -> None:
    directory = None if path.exists() else _directory(namespace)
    if directory is None or not (directory / file).exists():
        return
    reason = durability.attend(namespace)
    if reason is not None:
        raise ShmqError(
            f"the {what} of namespace {namespace.name!r} are on disk in {directory} and not in "
            f"memory, and no writer runs that would bring them back ({reason}): start "
            f"`{durability.command_for(namespace.name)} --data-dir {directory}` first"
        )


def _directory(namespace: Namespace) -> Path | None:
    """The directory where they are kept; None: nowhere."""
    try:
        directory = durability.directory_for(namespace)
        there = (directory / LOCK).exists()
    except (OSError, ShmqError):
        return None
    return directory if there or namespace.writer_pid is not None else None


def _is_kept(namespace: Namespace) -> bool:
    """Whether a writer runs to write the coming change; one is started if needed."""
    if _directory(namespace) is None:
        return False
    bring_back_exchanges(namespace)
    bring_back_schemas(namespace)
    return _is_written(namespace)


def _is_written(namespace: Namespace) -> bool:
    reason = durability.attend(namespace)
    if reason is not None:
        _warn(namespace, f"none was started ({reason})")
    return reason is None


def _warn(namespace: Namespace, why: str) -> None:
    warnings.warn(
        f"no persistence writer keeps the exchanges and schemas of namespace {namespace.name!r} "
        f"on disk, as far as is known here: {why}; what changes of them may be lost with the "
        f"machine's memory; start `{durability.command_for(namespace.name)}`",
        DurabilityWarning,
        stacklevel=durability.depth(),
    )


def _confirm(namespace: Namespace) -> None:
    """Return once the writer has written them. Raises NotConfirmed."""
    from shmq.storage.writer_control import ask_to_define  # noqa: PLC0415 - rarely needed

    began = time.monotonic()
    end = began + (_PATIENCE if durability.waits() else _BRIEF)
    while True:
        directory = namespace.data_dir
        now = time.monotonic()
        try:
            if directory is None:
                raise ShmqError("there is no data directory yet")
            refused = ask_to_define(directory, max(_LOOK, end - now))
        except (ShmqError, OSError) as error:
            if now >= end:
                raise _not_confirmed(namespace, str(error)) from error
        else:
            if refused is None:
                return
            raise _not_confirmed(namespace, refused)
        if directory is not None and _cannot_be_seen(directory, now - began):
            _warn(namespace, f"its directory {directory} cannot be seen from here")
            return
        if namespace.writer_pid is None and not _is_written(namespace):
            return
        time.sleep(_LOOK)


def _cannot_be_seen(directory: Path, waited: float) -> bool:
    if directory.exists():
        return False
    if waited >= _MADE:
        _unseen.add(directory)
    return directory in _unseen


def _not_confirmed(namespace: Namespace, why: str) -> NotConfirmed:
    return NotConfirmed(
        f"the exchanges and schemas of namespace {namespace.name!r} are changed, and are not known "
        f"to be on disk: {why}; they are written as soon as that is possible",
        taken=0,
    )


def _after_fork() -> None:
    _within.depth = 0


os.register_at_fork(after_in_child=_after_fork)
