"""Making a queue anew from what its files hold."""

from __future__ import annotations

import dataclasses
from typing import Any

from shmq.api.names import check_name
from shmq.api.options import DEAD_LETTER_ROOM, DEFAULT_ARENA, MAX_ARENA, QueueOptions
from shmq.errors import FileError, ShmqError
from shmq.namespace.namespace import Namespace
from shmq.storage.queue_files import QueueFiles

__all__ = ["rebuild"]


def rebuild(registry: Namespace, name: str, chain: QueueFiles, *, logged: bool) -> None:
    """Make the queue ``name`` with what ``chain`` holds. Needs the registry lock.

    Nobody can attach to it before it is whole; whoever dies here leaves something half made,
    which the next comer clears away. ``logged``: the files are the queue's own, and its
    journal goes on behind them; else all of it is new to the writer. Raises NoSpace,
    InvalidName, FileError for options that no queue can have, and ShmqError.
    """
    options = _options_of(check_name(name), chain.options)
    segment = registry.make_segment(name, options, hash_key=chain.hash_key, publish=False)
    try:
        chain.restore(segment, logged)
    except ShmqError:
        registry.remove_segment(name)
        raise


def _options_of(name: str, given: dict[str, Any]) -> QueueOptions:
    """The options that a file names. A checksum says nothing of what they are worth."""
    arena = given.get("arena_bytes", DEFAULT_ARENA)
    # A queue for dead letters may have a little more: see QueueOptions.for_dead_letters.
    room = DEAD_LETTER_ROOM if isinstance(arena, int) and arena > MAX_ARENA else 0
    try:
        checked = {**given, "arena_bytes": arena - room}
        options = QueueOptions.for_queue(name, checked)
    except (ShmqError, TypeError) as error:
        raise FileError(f"queue {name!r} cannot be made as its files say: {error}") from error
    return dataclasses.replace(options, arena_bytes=options.arena_bytes + room)
