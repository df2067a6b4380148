"""Checks a queue's segment without changing it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import stat
from collections.abc import Iterator, Sequence

from shmq.api.names import check_name
from shmq.client.local.queue import LocalQueue
from shmq.errors import (
    ForeignSegment,
    IncompatibleFile,
    IncompatibleSegment,
    LockTimeout,
    NoSpace,
    NoSuchQueue,
    QueueDeleted,
    ShmqError,
)
from shmq.host.diagnose.probe_process import Crashed, ProbeTimeout, run_each
from shmq.host.namespace.folder import gid_of_file
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import semaphore_file, semaphore_names
from shmq.host.namespace.shm_files import is_own
from shmq.native import _core
from shmq.native.descriptors import open_file
from shmq.native.directories import is_of_group

SOUND = "sound"
MISSING = "missing"
UNCHECKED = "unchecked"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """The result of checking a queue's segment."""

    name: str
    #: ``sound``, ``violated`` (an invariant does not hold), ``damaged`` (it cannot be
    #: attached to), ``incompatible``, ``foreign``, ``unfinished`` (half created or half
    #: deleted by a dead process), ``stuck``, ``crashed``, ``missing``, ``unchecked`` (there
    #: is no space for the check).
    state: str
    #: The problems, a sentence each.
    problems: list[str]


def examine(namespace: str, names: Sequence[str], seconds: float = 30.0) -> Iterator[SegmentReport]:
    """Check every invariant of the segment of each queue; the queues may be in use.

    A queue is locked while its slots are checked. ``seconds`` bounds how long that may take,
    including the wait for the lock.
    """
    check = functools.partial(_check, namespace)
    for name, result in zip(names, run_each(check, names, seconds, _is_sound), strict=True):
        if isinstance(result, ProbeTimeout):
            why = (
                f"it could not be checked within {seconds:g} s: its lock is held by a process that "
                f"is stopped, or is damaged; see `shmq who`, or delete the queue"
            )
            state, problems = "stuck", [why]
        elif isinstance(result, Crashed):
            state, problems = "crashed", [f"{result}; delete the queue"]
        else:
            state, problems = result
        yield SegmentReport(name=name, state=state, problems=problems)


def _is_sound(result: tuple[str, list[str]]) -> bool:
    return result[0] in {SOUND, MISSING}


def _check(namespace: str, name: str) -> tuple[str, list[str]]:
    registry = Namespace.of(namespace)
    try:
        check_name(name)
        segment = registry.look_at(name)
        if segment is None or segment.deleted:
            segment = _reopen(registry, name)
        if segment is None:
            return "unfinished", [
                "a process died while it made or deleted the queue: `shmq doctor --fix` removes it"
            ]
        problems = _check_semaphores(namespace, segment.queue_id)
        with LocalQueue(registry, name, segment) as queue:
            problems += queue.violations()
    except (ShmqError, OSError) as error:
        return state_of(error), [str(error)]
    return ("violated" if problems else SOUND), problems


def state_of(error: Exception) -> str:
    """The state of a queue or table that could not be checked."""
    states: tuple[tuple[type[Exception], str], ...] = (
        (NoSuchQueue, MISSING),
        (QueueDeleted, MISSING),
        (LockTimeout, "stuck"),
        (NoSpace, UNCHECKED),
        (IncompatibleFile, "incompatible"),
        (IncompatibleSegment, "incompatible"),
        (ForeignSegment, "foreign"),
    )
    return next((state for kind, state in states if isinstance(error, kind)), "damaged")


def _reopen(registry: Namespace, name: str) -> _core.Segment | None:
    """The segment, once no process is creating or deleting it any more."""
    with registry.locked():
        segment = registry.look_at(name)
    return None if segment is None or segment.deleted else segment


def _check_semaphores(namespace: str, queue_id: int) -> list[str]:
    """Problems of the semaphores' files; a missing one is found by attaching."""
    problems = []
    for name in semaphore_names(namespace, queue_id):
        path = semaphore_file(name)
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(path)
            gid = gid_of_file(path)
            if not is_own(status) and (gid is None or not is_of_group(status, gid)):
                problems.append(
                    f"its semaphore {path} has owner {status.st_uid} and mode "
                    f"{stat.S_IMODE(status.st_mode):04o}, so others may touch it: chmod 600 it"
                )
    return problems


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The file of a queue's segment."""

    namespace: str
    queue: str
    #: None if it is not a finished segment, or cannot be read.
    layout_version: int | None
    #: Whether that is the version of this shmq.
    ours: bool
    owner: int
    #: As in ``ls``: ``0600``.
    mode: str
    #: The size of the file, and the memory it takes, in bytes.
    size: int
    taken: int


def segments(namespace: str) -> list[Segment]:
    """The files of the segments of a namespace, by name."""
    found = (_open_segment(namespace, name) for name in Namespace.of(namespace).queue_names())
    return [segment for segment in found if segment is not None]


def _open_segment(namespace: str, name: str) -> Segment | None:
    path = Namespace.of(namespace).path_of(name)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    version = _read_layout(path) if stat.S_ISREG(status.st_mode) else None
    return Segment(
        namespace=namespace,
        queue=name,
        layout_version=version,
        ours=version == _core.LAYOUT_VERSION,
        owner=status.st_uid,
        mode=f"{stat.S_IMODE(status.st_mode):04o}",
        size=status.st_size,
        taken=status.st_blocks * 512,
    )


def _read_layout(path: str) -> int | None:
    try:
        fd = open_file(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return _core.layout_of(fd)
    finally:
        os.close(fd)
