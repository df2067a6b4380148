"""Recovers the streams whose shared memory is gone.

Each is created again with empty rings. Its partitions are the same, sealed as they were, and
their offsets continue where the files end; older records are read from the files. No process
sees the stream before its groups have their offsets.
"""

from __future__ import annotations

import logging

from shmq.api.names import check_name
from shmq.api.stream_options import StreamOptions
from shmq.errors import NoSuchStream, SegmentError, ShmqError
from shmq.namespace import streams
from shmq.namespace.namespace import Namespace
from shmq.persistence.stream_groups import restore_groups
from shmq.persistence.stream_recovery import StoredStream, plan_streams
from shmq.storage.disk import Disk
from shmq.storage.erase import sweep_streams
from shmq.storage.file_header import Tail
from shmq.storage.paths import stream_directory

__all__ = ["rebuild_stream", "recover_streams"]

log = logging.getLogger("shmq")


def recover_streams(registry: Namespace, disk: Disk) -> dict[str, StoredStream]:
    """Rebuild the streams that are on disk and not in memory; the result for each is logged.

    Returns those streams. Needs the registry lock, and the directory. May be killed at any moment
    and called again. Raises OSError.
    """
    live = _live(registry)
    known = {(name, identity) for name, identity in live.items() if identity is not None}
    sweep_streams(disk, known)
    lost = {}
    for name, stored in plan_streams(disk, known).items():
        if name in live:
            log.warning(
                "stream %s: %s has records of another stream of that name, which are left there",
                name,
                disk.path(stream_directory(name, stored.identity)),
            )
            continue
        _bring_back(registry, stored)
        lost[name] = stored
    return lost


def _live(registry: Namespace) -> dict[str, int | None]:
    """The identities of the streams in memory; None for one that cannot be read."""
    found: dict[str, int | None] = {}
    for name in registry.stream_names():
        try:
            found[name] = streams.open_stream(registry, name)[0].identity
        except NoSuchStream:
            continue
        except SegmentError as error:
            log.error("stream %s is there, and cannot be used: %s", name, error)
            found[name] = None
    return found


def _bring_back(registry: Namespace, stored: StoredStream) -> None:
    name = stored.name
    if stored.error is None:
        try:
            rebuild_stream(registry, stored)
        except (ShmqError, TypeError) as error:
            stored.error = error if isinstance(error, ShmqError) else ShmqError(str(error))
    if stored.error is not None:
        log.error(
            "stream %s is not brought back: %s; its files are left as they are",
            name,
            stored.error,
        )
        return
    records = sum(end.next - end.earliest for end in stored.ends)
    log.info("stream %s is back: %d records on disk", name, records)
    for partition, end in enumerate(stored.ends):
        if end.tail is not None:
            log.warning("stream %s: %s", name, end.tail.told(_lost(partition, end.tail)))


def _lost(partition: int, tail: Tail) -> str:
    if tail.batch is None or tail.last_seq is None:
        return f"records of an unknown number of partition {partition}"
    count = max(0, tail.last_seq - tail.batch)
    return (
        f"{count} record{'' if count == 1 else 's'} of partition {partition}, from offset "
        f"{tail.batch} on"
    )


def rebuild_stream(registry: Namespace, stored: StoredStream) -> None:
    """Create the stream in memory from its files. Needs the registry lock. Raises ShmqError."""
    name, options = check_name(stored.name, "stream"), StreamOptions.given(stored.options)
    firsts = [(end.next, end.time or 0) for end in stored.ends]
    control, logs = streams.make_stream(
        registry,
        name,
        options,
        identity=stored.identity,
        firsts=firsts,
        eras=stored.eras,
        publish=False,
    )
    for partition, end in zip(logs, stored.ends, strict=True):
        oldest_first = sorted(end.producers.items(), key=lambda one: one[1][1])
        partition.restore_producers((producer, *last) for producer, last in oldest_first)
    restore_groups(registry, stored)
    control.publish()
