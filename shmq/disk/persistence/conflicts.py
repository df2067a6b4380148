"""Names that are both in memory and in the data directory: whether both are one, or in conflict.

What is in memory is in use, so it stays. Its files count as its own only if this memory was
recovered from them, or they were written from it: then the directory's history has the memory's
number; or, in an older copy of the directory, that of an earlier one, as the host remembers. Other
files of the name are set aside, so that no state overwrites another: they may be of
a directory that was copied or restored by hand, or where an older memory was written. They are
logged, `shmq doctor` lists them, and `shmq restore --aside` restores them.
"""

from __future__ import annotations

import contextlib
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
    aside_names,
    catalog,
    free_name,
    stream_directory,
    streams_among,
)
from shmq.errors import NoSuchQueue, SegmentError, ShmqError
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
        keys = {file: _hash_key_if_any(disk, file) for file in found[name].names()}
        conflicting = {file: key for file, key in keys.items() if key in {live[name], None}}
        if conflicting:
            set_aside(disk, name, conflicting, _CONFLICT)
    for path, name in ((registry.exchanges_path, EXCHANGES), (registry.schemas_path, SCHEMAS)):
        if path.exists() and name in disk.names():
            set_definitions_aside(disk, name, _CONFLICT)
    live_streams = _stream_identities(registry).items()
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if (name, identity) in live_streams:
            set_stream_aside(disk, name, stream_directory(name, identity), _CONFLICT)


def set_earlier_streams_aside(registry: Namespace, disk: Disk) -> None:
    """Set aside the files of streams whose names other streams in memory have.

    To be called once pending deletions are complete. Needs the registry lock. Raises OSError.
    """
    live = _stream_identities(registry)
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if live.get(name, identity) != identity and is_carded(disk, name, identity):
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
    found = {(name, key) for name, key in live.items() if key is not None}
    return found.union(_stream_identities(registry).items())


def _stream_identities(registry: Namespace) -> dict[str, int]:
    """The identities of the streams in memory that can be opened."""
    found = {}
    for name in registry.stream_names():
        with contextlib.suppress(ShmqError):
            found[name] = streams.open_stream(registry, name)[0].identity
    return found


# ---- setting aside ----


def _set_earlier_files_aside(disk: Disk, live: Mapping[str, int | None]) -> None:
    for name, files in catalog(disk.names()).items():
        if live.get(name) is not None:
            keys = {file: _hash_key_if_any(disk, file) for file in files.names()}
            earlier = {file: key for file, key in keys.items() if key not in {live[name], None}}
            if earlier:
                set_aside(disk, name, earlier)


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
    streams_there = disk.under(STREAMS)
    own = directory.removeprefix(f"{STREAMS}/")
    there = free_name(f"{own}.aside", streams_there.names())
    streams_there.rename(own, there)
    streams_there.sync_directory()
    log.warning("stream %s: %s %s, and is renamed to %s", name, disk.path(directory), why, there)


def set_definitions_aside(disk: Disk, name: str, why: str, error: Exception | None = None) -> None:
    """Rename a file of the namespace's definitions, durably. Raises OSError."""
    there = free_name(f"{name}.aside", disk.names())
    disk.rename(name, there)
    disk.sync_directory()
    more = "" if error is None else f": {error}"
    log.error("%s %s, and is renamed to %s%s", disk.path(name), why, there, more)
