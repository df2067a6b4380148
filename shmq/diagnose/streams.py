"""Checks the streams of a namespace, in shared memory and on disk."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

from shmq.client.local.stream import LocalStream, attach
from shmq.diagnose.journals import why_unkept
from shmq.diagnose.segments import SOUND, SegmentReport
from shmq.errors import NoSuchStream, ShmqError, StreamDeleted
from shmq.namespace import streams
from shmq.namespace.namespace import Namespace
from shmq.storage.check import stored_streams, stream_problems
from shmq.storage.disk import Disk
from shmq.storage.paths import stream_directory

__all__ = ["examine_files", "half_made_streams", "stream_findings"]


def examine_files(namespace: str) -> list[SegmentReport]:
    """Check every record in each durable stream's files; a stream may be written meanwhile."""
    directory = Namespace.of(namespace).data_dir
    if directory is None:
        return []
    disk, found = Disk(directory), []
    for name, identity in stored_streams(disk):
        try:
            problems = stream_problems(disk, name, identity)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue  # it was deleted meanwhile
            problems = [f"{error.filename or directory} cannot be read: {error.strerror}"]
        state = "damaged" if problems else SOUND
        own = stream_directory(name, identity)
        found.append(SegmentReport(name=own, state=state, problems=problems))
    return found


def half_made_streams(registry: Namespace, fix: bool) -> Iterator[tuple[str, str]]:
    """Half created and half deleted streams, each with what is wrong; removed if ``fix``.

    Needs the registry lock.
    """
    for name in registry.stream_names():
        with contextlib.suppress(ShmqError):
            control = streams.look_at(registry, name)
            if control is None or control.deleted:
                if fix:
                    streams.remove_stream(registry, name)
                yield name, "half made" if control is None else "half deleted"


def stream_findings(registry: Namespace, name: str, fix: bool) -> list[dict[str, Any]]:
    """Leftovers of dead processes in a stream, removed if ``fix``, and what is unusable."""
    try:
        control = streams.look_at(registry, name)
        if control is None or control.deleted:
            return []
        with attach(registry, name) as stream:
            return [*_held(registry, stream, fix), *_disk(registry, stream)]
    except (NoSuchStream, StreamDeleted):
        return []
    except (ShmqError, OSError) as error:
        return [_found(registry, "stream", name, str(error))]


def _held(registry: Namespace, stream: LocalStream, fix: bool) -> Iterator[dict[str, Any]]:
    for log in stream.logs:
        for number, owner, _, _ in log.holders():
            if owner and not registry.is_alive(owner):
                if fix:
                    log.drop_of(number, owner)
                what = f"partition {log.number} is held by process {owner}, which is dead"
                yield _found(registry, "hold", stream.name, what, fix)


def _disk(registry: Namespace, stream: LocalStream) -> Iterator[dict[str, Any]]:
    kept = all(log.writer and registry.is_alive(log.writer) for log in stream.logs)
    problem = why_unkept(stream.options.durability, None, kept)
    if problem is not None:
        yield _found(registry, "disk", stream.name, problem)


def _found(
    registry: Namespace, kind: str, name: str, what: str, fixed: bool = False
) -> dict[str, Any]:
    return {"namespace": registry.name, "kind": kind, "name": name, "what": what, "fixed": fixed}
