"""Rebuilds a queue in shared memory from its files."""

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
    """Create the queue ``name`` with the messages of ``chain``. Needs the registry lock.

    No process can attach to it before it is complete. A process that dies here leaves a half
    created segment, which the next process removes. ``logged``: the files are the queue's own,
    and its journal continues behind them; otherwise the writer writes all of it anew. Raises
    NoSpace, InvalidName, FileError for options that no queue can have, and ShmqError.
    """
    options = _options_of(check_name(name), chain.options)
    segment = registry.make_segment(name, options, hash_key=chain.hash_key, publish=False)
    try:
        chain.restore(segment, logged)
    except ShmqError:
        registry.remove_segment(name)
        raise


def _options_of(name: str, given: dict[str, Any]) -> QueueOptions:
    """The options in a file, checked: a correct checksum does not make them valid."""
    arena = given.get("arena_bytes", DEFAULT_ARENA)
    # A dead-letter queue may have a little more: see QueueOptions.for_dead_letters.
    room = DEAD_LETTER_ROOM if isinstance(arena, int) and arena > MAX_ARENA else 0
    try:
        checked = {**given, "arena_bytes": arena - room}
        options = QueueOptions.for_queue(name, checked)
    except (ShmqError, TypeError) as error:
        raise FileError(f"queue {name!r} cannot be made as its files say: {error}") from error
    return dataclasses.replace(options, arena_bytes=options.arena_bytes + room)
