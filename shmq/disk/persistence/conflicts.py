"""Names that are both in memory and in the data directory: whether both are one, or in conflict.

What is in memory is in use, so it stays. Its files count as its own only if this memory was
recovered from them, or they were written from it: then the directory's history has the memory's
number; or, in an older copy of the directory, that of an earlier one, as the host remembers. Other
files of the name are set aside, so that no state overwrites another: they may be of
a directory that was copied or restored by hand, or where an older memory was written. They are
logged, `shmq doctor` lists them, and `shmq restore --aside` restores them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import is_carded
from shmq.disk.storage.file_header import hash_key_of
from shmq.disk.storage.history import History, read_history, write_history
from shmq.disk.storage.paths import (
    EXCHANGES,
    SCHEMAS,
    STREAMS,
    Files,
    aside_names,
    catalog,
    stream_directory,
    streams_among,
)
from shmq.disk.storage.set_aside import rename_aside
from shmq.errors import NoSuchQueue, NoSuchStream, SegmentError
from shmq.host.namespace import streams
from shmq.host.namespace.data_directory import remember
from shmq.host.namespace.directory_record import read_record
from shmq.host.namespace.namespace import Namespace

log = logging.getLogger("shmq")

_CONFLICT: Final = "has another history than the one in memory"


def join_memory(registry: Namespace, disk: Disk) -> None:
    """Make the directory's files those of this memory; what conflicts with it is set aside.

    To be called before anything is recovered or written. Needs the registry lock, and the
    directory. May be killed at any moment and called again. Raises OSError.
    """
    live = live_keys(registry)
    history = read_history(disk)
    memory = registry.processes.memory
    if history.memory != memory:
        record = read_record(registry.name)
        known = () if record is None else record.memories
        if known[-1:] == (memory,) and history.memory in known:
            history = History(known[-2] if len(known) > 1 else 0, known[:-2], history.moving_from)
        else:
            _set_conflicts_aside(registry, disk, live)
    if history != history.joined(memory):
        write_history(disk, history.joined(memory))
    remember(registry.name, disk.directory)
    _set_earlier_files_aside(disk, live)


def _set_conflicts_aside(registry: Namespace, disk: Disk, live: Mapping[str, int | None]) -> None:
    found = catalog(disk.names())
    for name in sorted(found.keys() & live.keys()):
        keys = _hash_keys_of(disk, found[name])
        conflicting = {file: key for file, key in keys.items() if key in {live[name], None}}
        if conflicting:
            set_aside(disk, name, conflicting, _CONFLICT)
    for path, name in ((registry.exchanges_path, EXCHANGES), (registry.schemas_path, SCHEMAS)):
        if path.exists() and name in disk.names():
            set_definitions_aside(disk, name, _CONFLICT)
    live_streams = live_identities(registry).items()
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if (name, identity) in live_streams:
            set_stream_aside(disk, name, stream_directory(name, identity), _CONFLICT)


def set_earlier_streams_aside(registry: Namespace, disk: Disk) -> None:
    """Set aside the files of streams whose names other streams in memory have.

    To be called once pending deletions are complete. Needs the registry lock. Raises OSError.
    """
    live = live_identities(registry)
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if live.get(name) not in {None, identity} and is_carded(disk, name, identity):
            directory = stream_directory(name, identity)
            set_stream_aside(disk, name, directory, "belongs to an earlier stream of that name")


# ---- what is in memory ----


def live_keys(registry: Namespace) -> dict[str, int | None]:
    """The hash keys of the queues in memory; None for one that cannot be read.

    Half created and half deleted segments are removed. Needs the registry lock.
    """
    found: dict[str, int | None] = {}
    for name in registry.queue_names():
        try:
            found[name] = registry.open_segment(name).hash_key
        except NoSuchQueue:
            continue
        except SegmentError as error:
            log.error("queue %s in memory cannot be used: %s", name, error)
            found[name] = None
    return found


def in_memory(registry: Namespace, live: Mapping[str, int | None]) -> set[tuple[str, int]]:
    """Names and identities of the queues and streams in memory."""
    there = (*live.items(), *live_identities(registry).items())
    return {(name, key) for name, key in there if key is not None}


def live_identities(registry: Namespace, level: int = logging.DEBUG) -> dict[str, int | None]:
    """The same of the streams in memory; what cannot be read is logged at that level."""
    found: dict[str, int | None] = {}
    for name in registry.stream_names():
        try:
            found[name] = streams.open_stream(registry, name)[0].identity
        except NoSuchStream:
            continue
        except SegmentError as error:
            log.log(level, "stream %s in memory cannot be used: %s", name, error)
            found[name] = None
    return found


# ---- setting aside ----


def _set_earlier_files_aside(disk: Disk, live: Mapping[str, int | None]) -> None:
    for name, files in catalog(disk.names()).items():
        if (own := live.get(name)) is not None:
            set_earlier_aside(disk, name, own, _hash_keys_of(disk, files))


def set_earlier_aside(
    disk: Disk, queue: str, own: int, keys: Mapping[str, int | None]
) -> Mapping[str, str]:
    """Set aside those of the queue's files that have another hash key; returns the new names."""
    earlier = {file: key for file, key in keys.items() if key not in {own, None}}
    return set_aside(disk, queue, earlier) if earlier else {}


def _hash_keys_of(disk: Disk, files: Files) -> dict[str, int | None]:
    return {file: _hash_key_if_any(disk, file) for file in files.names()}


def _hash_key_if_any(disk: Disk, file: str) -> int | None:
    try:
        return hash_key_of(disk, file)
    except OSError as error:
        log.error("%s cannot be read: %s", disk.path(file), error.strerror)
        return None


def set_aside(
    disk: Disk,
    queue: str,
    files: Mapping[str, int | None],
    why: str = "belongs to an earlier queue of that name",
) -> dict[str, str]:
    """Rename the queue's ``files``, given with their hash keys, durably; returns the new names."""
    renamed = aside_names(files, disk.names())
    for file, there in renamed.items():
        disk.rename(file, there)
        log.warning("queue %s: %s %s, and is renamed to %s", queue, disk.path(file), why, there)
    disk.sync_directory()
    return renamed


def set_stream_aside(disk: Disk, name: str, directory: str, why: str) -> None:
    """Rename the stream's ``directory``, durably. Raises OSError."""
    there = rename_aside(disk.under(STREAMS), directory.removeprefix(f"{STREAMS}/"), "aside")
    log.warning("stream %s: %s %s, and is renamed to %s", name, disk.path(directory), why, there)


def set_definitions_aside(disk: Disk, name: str, why: str, error: Exception | None = None) -> None:
    """Rename a file of the namespace's definitions, durably. Raises OSError."""
    there = rename_aside(disk, name, "aside")
    more = "" if error is None else f": {error}"
    log.error("%s %s, and is renamed to %s%s", disk.path(name), why, there, more)
