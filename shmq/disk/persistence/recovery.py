"""Recovers the queues whose segments are gone.

`plan` decides from the files alone what each queue holds. Then the queues without a segment are
rebuilt, under the registry lock, and no process sees one before it is complete. The files stay
as they are, and the writer continues after them, so a recovery that is killed can start again
from the same files.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shmq.api.names import check_name
from shmq.api.options import DEAD_LETTER_ROOM, DEFAULT_ARENA, MAX_ARENA, QueueOptions
from shmq.client.local.queue import attach
from shmq.disk.persistence.conflicts import (
    in_memory,
    join_memory,
    live_keys,
    set_earlier_streams_aside,
)
from shmq.disk.persistence.definitions import recover_definitions
from shmq.disk.persistence.stream_recovery import StoredStream, recover_streams
from shmq.disk.persistence.transaction_recovery import complete_transactions, drop_the_lost
from shmq.disk.storage.disk import PASSING, Disk, load_file, sync_file, unreadable
from shmq.disk.storage.erase import finish_erasures
from shmq.disk.storage.file_header import read_tail
from shmq.disk.storage.inventory import write_refusals
from shmq.disk.storage.paths import Files, catalog, segment_name, unfinished
from shmq.disk.storage.progress import OnProgress, Report, Step, bytes_of, silent
from shmq.disk.storage.queue_files import QueueFiles
from shmq.disk.storage.queue_reader import lineage_of
from shmq.errors import FileError, LockTimeout, ShmqError
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace

log = logging.getLogger("shmq")


@dataclass(slots=True)
class Decision:
    """What was decided from the files of one queue."""

    queue: str
    files: Files
    #: The names of the files that count.
    lineage: list[str] = field(default_factory=list)
    #: What it holds; None if nothing was ever finished, or the files are damaged.
    chain: QueueFiles | None = None
    #: What is wrong with the files; None if they are intact.
    error: ShmqError | None = None
    #: What a salvage left out.
    problems: list[str] = field(default_factory=list)


def plan(disk: Disk, *, salvage: bool = False, report: Report = silent) -> dict[str, Decision]:
    """What the queues of the directory hold, by name.

    Changes nothing, and needs no shared memory. A message that was being moved, and is in the
    files of both queues, counts as moved. With ``salvage``, the intact parts of damaged files
    count.
    """
    found = {
        name: files
        for name, files in catalog(disk.names()).items()
        if files.snapshot or files.segments
    }
    sizes = {name: bytes_of(map(disk.path, files.names())) for name, files in found.items()}
    step = Step(report, "reading queues", sum(sizes.values()))
    decisions = {}
    for name, files in found.items():
        with step.part(sizes[name]) as on_progress:
            decisions[name] = _decide(disk, files, salvage=salvage, on_progress=on_progress)
    settle_moves([one.chain for one in decisions.values() if one.chain is not None])
    return decisions


def _decide(disk: Disk, files: Files, *, salvage: bool, on_progress: OnProgress) -> Decision:
    decision = Decision(files.queue, files)
    try:
        decision.lineage = lineage_of(disk, files)
        if decision.lineage:
            loaded = [
                (str(disk.path(name)), load_file(disk, name, salvage=salvage))
                for name in decision.lineage
            ]
            decision.chain = QueueFiles(loaded, salvage, on_progress=on_progress)
            decision.problems = [str(skipped) for skipped in decision.chain.skipped]
    except ShmqError as error:
        decision.error = error
    except OSError as error:
        if error.errno in PASSING:
            raise
        decision.error = unreadable(error, disk.path(next(files.names())))
    return decision


def settle_moves(chains: Iterable[QueueFiles]) -> None:
    """Leave each message that two queues have only in the one that it was moved to.

    A queue and a copy of it that was restored from a backup have the same hash key. Then it is
    unknown from which of them a message came, so neither loses it.
    """
    every = list(chains)
    by_key = _list_unique(every)
    for chain in every:
        for origin_queue, origin_seq, _ in chain.origins():
            source = by_key.get(origin_queue)
            if source is not None and source is not chain:
                source.leave(origin_seq)


def _list_unique(chains: Iterable[QueueFiles]) -> dict[int, QueueFiles]:
    """The chains by their hash keys, without keys that several have."""
    by_key: dict[int, list[QueueFiles]] = {}
    for chain in chains:
        by_key.setdefault(chain.hash_key, []).append(chain)
    return {key: alike[0] for key, alike in by_key.items() if len(alike) == 1}


def recover(directory: DataDirectory) -> dict[str, Decision]:
    """Rebuild the queues and streams whose segments are gone, then the exchanges and schemas.

    The result for each is logged. Returns what was decided for the queues. Needs a directory
    that is held. Queues in memory stay as they are; files of an earlier queue of their name are
    set aside. The files of a queue that cannot be recovered stay as they are. May be killed at
    any moment and called again. Raises :class:`~shmq.ShmqError` if the directory cannot be read.
    """
    disk = directory.disk
    registry = Namespace.of(directory.namespace)
    try:
        with registry.locked():
            disk.sync_directory()  # the previous writer may have died before its own sync
            finish_erasures(disk)
            join_memory(registry, disk)
            live = live_keys(registry)
            _remove_unfinished(disk)
            there = in_memory(registry, live)
            drop_the_lost(registry, there)
            complete_transactions(disk, there)
            streams = recover_streams(registry, disk)
            set_earlier_streams_aside(registry, disk)
            lost = _recover_queues(registry, disk, live)
            _write_refusals(disk, lost, streams)
            recover_definitions(registry, disk)
            return lost
    except LockTimeout:  # an OSError, too
        raise
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or error
        raise ShmqError(f"data_dir={str(directory.path)!r} cannot be recovered: {what}") from error


def _recover_queues(
    registry: Namespace, disk: Disk, live: Mapping[str, int | None]
) -> dict[str, Decision]:
    """Rebuild the queues that are not in memory; returns what was decided for them."""
    if catalog(disk.names()).keys() <= live.keys():
        return {}
    decisions = plan(disk)
    lost = {name: one for name, one in decisions.items() if name not in live}
    _drop_moved(registry, live, lost)
    for name in sorted(lost):
        _recover_queue(registry, disk, lost[name])
    return lost


def _write_refusals(
    disk: Disk, queues: Mapping[str, Decision], streams: Mapping[str, StoredStream]
) -> None:
    """Note why a queue or stream was not recovered, for processes that ask for it."""
    missing = {
        name: one.error
        for name, one in queues.items()
        if one.error is not None or one.chain is None
    }
    broken = {name: one.error for name, one in streams.items() if one.error is not None}
    try:
        write_refusals(disk, {"queue": missing, "stream": broken})
    except OSError as error:
        log.error("writer.refused in %s cannot be written: %s", disk.directory, error.strerror)


def _remove_unfinished(disk: Disk) -> None:
    """Remove snapshots that were never finished."""
    stale = [unfinished(name) for name, files in catalog(disk.names()).items() if files.unfinished]
    for name in stale:
        try:
            disk.unlink(name)
        except (IsADirectoryError, PermissionError) as error:
            log.error("%s cannot be removed: %s", disk.path(name), error.strerror)
    if stale:
        disk.sync_directory()


def _drop_moved(
    registry: Namespace, live: Mapping[str, int | None], lost: Mapping[str, Decision]
) -> None:
    """Leave out messages that a queue in memory has taken over from a lost queue."""
    chains = [one.chain for one in lost.values() if one.chain is not None]
    taken = set(live.values())
    sources = {key: one for key, one in _list_unique(chains).items() if key not in taken}
    for name in live:
        try:
            queue = attach(registry, name)
        except ShmqError:
            continue
        with queue:
            for hash_key, seq in queue.transfer.copies_from(sources):
                sources[hash_key].leave(seq)


def _recover_queue(registry: Namespace, disk: Disk, decision: Decision) -> None:
    name = decision.queue
    if decision.error is None and decision.chain is not None:
        try:
            sync_files(disk, decision.lineage)
            rebuild_queue(registry, name, decision.chain, logged=True)
        except ShmqError as error:
            decision.error = error
        else:
            log.info(
                "queue %s is recovered: %d message%s, from %s",
                name,
                decision.chain.messages,
                "" if decision.chain.messages == 1 else "s",
                ", ".join(decision.lineage),
            )
            _log_tail(disk, name, decision.chain)
    if decision.error is not None:
        log.error(
            "queue %s is not recovered: %s; its files are unchanged: "
            "shmq restore --salvage -q %s restores their intact parts",
            name,
            decision.error,
            name,
        )


def _log_tail(disk: Disk, name: str, chain: QueueFiles) -> None:
    """Log the torn tail of the last segment, of which nothing was ever confirmed."""
    if chain.open_salt is None:
        return
    tail = read_tail(disk, segment_name(name, chain.segment), chain.end, chain.open_salt)
    if tail is None:
        return
    lost = "records of an unknown number"
    if tail.last_seq is not None:
        count = max(0, tail.last_seq - chain.last_seq)
        lost = f"the puts of up to {count} message{'' if count == 1 else 's'}"
    log.warning("queue %s: %s", name, tail.describe(lost))


def sync_files(disk: Disk, names: Iterable[str]) -> None:
    """Sync the files that were read: their writer may have died before its own sync.

    The journal that continues after them relies on it. Raises ShmqError.
    """
    for name in names:
        try:
            sync_file(disk, name)
        except OSError as error:
            raise ShmqError(f"{disk.path(name)} cannot be synced: {error.strerror}") from error


def rebuild_queue(
    registry: Namespace,
    name: str,
    chain: QueueFiles,
    *,
    logged: bool,
    on_progress: OnProgress | None = None,
) -> None:
    """Create the queue ``name`` with the messages of ``chain``. Needs the registry lock.

    No process can attach to it before it is complete. A process that dies here leaves a half
    created segment, which the next process removes. ``logged``: the files are the queue's own,
    and its journal continues after them; otherwise the writer writes all of it again.
    ``on_progress`` is called with how many more of the chain's bytes are in the queue. Raises
    NoSpace, InvalidName, FileError for options that no queue can have, and ShmqError.
    """
    options = _check_options(check_name(name), chain.options)
    segment = registry.make_segment(name, options, hash_key=chain.hash_key, publish=False)
    try:
        chain.restore(segment, logged, on_progress)
    except BaseException:  # also a signal
        registry.remove_segment(name)
        raise


def _check_options(name: str, given: dict[str, Any]) -> QueueOptions:
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
