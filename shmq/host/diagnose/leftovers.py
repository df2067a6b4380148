"""Finds and removes what dead processes have left in a namespace.

Operations remove most leftovers when they come across them; this finds the rest. Nothing counts
as stale by its age or by a PID: the kernel says which processes live
(:mod:`shmq.host.namespace.namespace`), and the registry lock excludes the creation and removal of
files in the meantime.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from shmq.api.names import SHM, check_name
from shmq.client.local.queue import LocalQueue, remove_if_over
from shmq.client.local.stream import LocalStream, attach
from shmq.client.local.temporary_queue import looks_over
from shmq.client.transaction.recover import settle
from shmq.client.transaction.transaction_log import ledger_path, owners
from shmq.errors import (
    ForeignSegment,
    InvalidName,
    NoSuchQueue,
    NoSuchStream,
    QueueDeleted,
    ShmqError,
    StreamDeleted,
)
from shmq.host.diagnose.journal_problem import unwritten, why_unkept
from shmq.host.diagnose.probe_process import run_each
from shmq.host.namespace import streams
from shmq.host.namespace.folder import (
    file_path,
    file_prefix,
    gid_of_file,
    group_folders,
    list_folder,
)
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import semaphore_file, semaphore_names
from shmq.host.namespace.wakeups import wakeup_owner
from shmq.lazy_imports import late_imports
from shmq.model.table.files import disk_directory
from shmq.model.table.files import leftovers as table_leftovers
from shmq.native import _core
from shmq.native.descriptors import open_file

_OURS = re.compile(
    r"(?:sem\.|bell\.|mp\.|names\.|exchanges\.|schemas\.|stream\.|log\.|group\.|txn\.|tables\.)?"
    r"shmq@(?P<namespace>[^@]+)(?:@(?P<rest>.*))?",
    re.DOTALL,
)
_SEMAPHORE = re.compile(r"([0-9a-f]{16})\.not_(?:empty|full)")
_ANONYMOUS = re.compile(r"[0-9]+\.[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A leftover or a problem."""

    namespace: str
    #: ``anonymous`` (a queue of shmq.mp without handles), ``segment`` (half created or half
    #: deleted), ``semaphore`` (without its queue), ``bell`` (a dead process's wakeup),
    #: ``attachment`` (of a dead process), ``copy`` (of a message whose mover died),
    #: ``temporary`` (a queue that has ended, of ``expires``, ``auto_delete`` or ``exclusive``),
    #: ``transaction`` (of a process that died while it committed), ``table`` (a file that is half
    #: created or half deleted),
    #: ``namespace`` (a file without a queue or a process); these are removed. ``queue``
    #: (unusable), ``disk`` (a queue that is not written to disk) and ``file`` (unknown) never
    #: are.
    kind: str
    #: The queue's or the file's name.
    name: str
    #: What is wrong with it.
    what: str
    #: Whether it was removed.
    fixed: bool


def namespaces() -> tuple[list[str], int]:
    """The namespaces of this user and of its groups; and the number of other users' files."""
    found, others = set(), 0
    for entry in os.scandir(SHM):
        own = _read_namespace(entry.name)
        if own is not None:
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    found.add(own)
                else:
                    others += 1
    for group, folder in group_folders():
        names = map(_read_namespace, os.listdir(folder))
        found.update(f"{group}/{name}" for name in names if name is not None)
    return sorted(found), others


def _read_namespace(file: str) -> str | None:
    """The namespace in the name of a file, without its group; None: it is not one of shmq's."""
    parts = _OURS.fullmatch(file)
    with contextlib.suppress(InvalidName):
        return None if parts is None else check_name(parts["namespace"], "namespace")
    return None


def sweep(
    namespace: str,
    fix: bool,
    seconds: float = 30.0,
    on_checked: Callable[[int, int], object] = lambda _, __: None,
) -> list[Finding]:
    """Find leftovers in the namespace, and remove them if ``fix``; also find what is unusable.

    ``seconds`` bounds how long the files, and each of the queues, may take. ``on_checked`` is
    called with how many of the queues and streams were checked, and of how many.
    """
    registry = Namespace.of(namespace)
    before = file_path(namespace, "").exists()
    (found,) = _run(namespace, [namespace], lambda _: _find_files(namespace, fix), seconds)
    queues, others = registry.queue_names(), registry.stream_names()
    checks = itertools.chain(
        _run(namespace, queues, lambda name: _queue(namespace, name, fix), seconds),
        _run(namespace, others, lambda name: _find_stream(registry, name, fix), seconds),
    )
    for checked, more in enumerate(checks, 1):
        found += more
        on_checked(checked, len(queues) + len(others))
    (last,) = _run(
        namespace, [namespace], lambda _: _find_own_file(namespace, fix, before), seconds
    )
    return found + last


def _run(
    namespace: str, names: list[str], work: Callable[[str], list[dict[str, Any]]], seconds: float
) -> Iterator[list[Finding]]:
    """What ``work`` finds in each, in separate processes: memory may be damaged, a lock stuck."""
    for name, result in zip(names, run_each(work, names, seconds, _is_usable), strict=True):
        rows = result
        if isinstance(result, ShmqError):
            rows = [_make_finding(namespace, "queue", name, f"unusable: {result}")]
        yield [Finding(**one) for one in rows]


def _is_usable(found: list[dict[str, Any]]) -> bool:
    """Whether the memory that was read is sound, as far as is known."""
    return not any(one["kind"] in {"queue", "stream"} for one in found)


def _make_finding(
    namespace: str, kind: str, name: str, what: str, fixed: bool = False
) -> dict[str, Any]:
    return {"namespace": namespace, "kind": kind, "name": name, "what": what, "fixed": fixed}


# ---- files, under the registry lock ----


def _find_files(namespace: str, fix: bool) -> list[dict[str, Any]]:
    registry = Namespace.of(namespace)
    try:
        with registry.locked():
            return [
                *_find_anonymous(registry, fix),
                *_find_unfinished(registry, fix),
                *_find_semaphores(registry, fix),
                *_find_wakeups(registry, fix),
                *_find_transactions(registry, fix),
                *_find_tables(registry, fix),
            ]
    except ForeignSegment as error:
        return [_make_finding(namespace, "file", namespace, str(error))]


def _find_transactions(registry: Namespace, fix: bool) -> Iterator[dict[str, Any]]:
    for process in owners(registry):
        if not registry.processes.is_alive(process):
            what = "its process died while it committed a transaction"
            fixed = fix and settle(registry, process)
            yield _make_finding(
                registry.name, "transaction", ledger_path(registry, process).name, what, fixed
            )


def _find_tables(registry: Namespace, fix: bool) -> Iterator[dict[str, Any]]:
    """Files of tables that were half made or half deleted."""
    for directory in (registry.tables_path, disk_directory(registry)):
        for path in list(table_leftovers(directory)):
            if fix:
                path.unlink(missing_ok=True)
            what = "half made or half deleted by a process that died"
            yield _make_finding(registry.name, "table", path.name, what, fix)


def _find_anonymous(registry: Namespace, fix: bool) -> Iterator[dict[str, Any]]:
    """Queues of :mod:`shmq.mp` that killed processes have left."""
    with late_imports:
        from shmq.mp import store  # noqa: PLC0415 - it loads multiprocessing

    for name in store.abandoned(registry):
        if fix:
            store.remove(registry, name)
        yield _make_finding(registry.name, "anonymous", name, "no process has a handle of it", fix)
    stem = f"{file_prefix(registry.name, 'mp.')}@"
    for entry in sorted(name for name in list_folder(registry.name) if name.startswith(stem)):
        if not _ANONYMOUS.fullmatch(entry.removeprefix(stem)):
            yield _make_finding(
                registry.name, "file", entry, "shmq does not create files of that name"
            )
        elif _is_foreign(registry, entry):
            yield _make_finding(registry.name, "file", entry, "it belongs to another user")


def _is_foreign(registry: Namespace, entry: str) -> bool:
    """Whether the file is another user's, and not of a group that shares the namespace."""
    path = registry.folder / entry
    with contextlib.suppress(FileNotFoundError):
        status, gid = path.lstat(), gid_of_file(path)
        return status.st_uid != os.geteuid() and status.st_gid != gid
    return False


def _find_unfinished(registry: Namespace, fix: bool) -> Iterator[dict[str, Any]]:
    """Segments that are half created or half deleted, although no process works on them."""
    for name in registry.queue_names():
        with contextlib.suppress(ShmqError):
            segment = registry.look_at(name)
            if segment is None or segment.deleted:
                half = "half made" if segment is None else "half deleted"
                if fix:
                    registry.remove_segment(name)
                yield _make_finding(
                    registry.name, "segment", name, f"{half} by a process that died", fix
                )
    for name, half in _find_half_made_streams(registry, fix):
        yield _make_finding(registry.name, "stream", name, f"{half} by a process that died", fix)


def _find_semaphores(registry: Namespace, fix: bool) -> Iterator[dict[str, Any]]:
    """Semaphores without a queue."""
    stem = f"{file_prefix(registry.name, 'sem.')}@"
    known = _list_known_semaphores(registry)
    for entry in sorted(name for name in list_folder(registry.name) if name.startswith(stem)):
        if not _SEMAPHORE.fullmatch(entry.removeprefix(stem)):
            yield _make_finding(
                registry.name, "file", entry, "shmq does not create files of that name"
            )
        elif known is not None and entry not in known:
            yield from _remove_file(registry, "semaphore", entry, "its queue is gone", fix)


def _find_wakeups(registry: Namespace, fix: bool) -> Iterator[dict[str, Any]]:
    """Wakeups without a process."""
    for entry in sorted(list_folder(registry.name)):
        process = wakeup_owner(registry.name, entry)
        if process is not None and not registry.processes.is_alive(process):
            yield from _remove_file(registry, "bell", entry, "its process is dead", fix)


def _remove_file(
    registry: Namespace, kind: str, entry: str, what: str, fix: bool
) -> Iterator[dict[str, Any]]:
    path = registry.folder / entry
    if _is_foreign(registry, entry):
        yield _make_finding(registry.name, "file", entry, "it belongs to another user")
    elif os.path.lexists(path):
        if fix:
            path.unlink(missing_ok=True)
        yield _make_finding(registry.name, kind, entry, what, fix)


def _list_known_semaphores(registry: Namespace) -> set[str] | None:
    """The files of all queues' semaphores; None if a queue cannot be read."""
    known: set[str] = set()
    for name in registry.queue_names():
        try:
            segment = registry.look_at(name)
        except NoSuchQueue:
            continue
        except ShmqError:
            return None
        queue_id = segment.queue_id if segment is not None else _read_unfinished_id(registry, name)
        files = map(semaphore_file, semaphore_names(registry.name, queue_id))
        known.update(file.rpartition("/")[2] for file in files)
    return known


def _read_unfinished_id(registry: Namespace, name: str) -> int:
    fd = open_file(registry.path_of(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _core.unfinished_id(fd)
    finally:
        os.close(fd)


def _find_own_file(namespace: str, fix: bool, before: bool) -> list[dict[str, Any]]:
    """The namespace's own file. One that did not exist ``before`` was created by this check."""
    registry = Namespace.of(namespace)
    with contextlib.suppress(ForeignSegment):
        if not before:
            registry.retire()
        elif registry.processes.deserted():
            if fix:
                registry.retire()
            what = "it has neither a queue nor a process"
            return [_make_finding(namespace, "namespace", namespace, what, fix)]
    return []


# ---- within a queue ----


def _queue(namespace: str, name: str, fix: bool) -> list[dict[str, Any]]:
    registry = Namespace.of(namespace)
    try:
        check_name(name)
        segment = registry.look_at(name)
        if segment is None or segment.deleted:
            return []
        if segment.is_temporary and looks_over(registry, segment):
            fixed = fix and remove_if_over(registry, name)
            what = "it has ended: its owner, or its last consumer, is gone"
            return [_make_finding(namespace, "temporary", name, what, fixed)]
        with LocalQueue(registry, name, segment) as queue:
            found = [*_find_dead(registry, queue), *_find_copies(registry, queue)]
            if found and fix:
                queue.tend()
                left = [*_find_dead(registry, queue), *_find_copies(registry, queue)]
                found = [{**one, "fixed": one not in left} for one in found]
            return [*found, *_find_disk(registry.name, queue)]
    except (NoSuchQueue, QueueDeleted):
        return []
    except (ShmqError, OSError) as error:
        return [_make_finding(namespace, "queue", name, str(error))]


def _find_disk(namespace: str, queue: LocalQueue) -> Iterator[dict[str, Any]]:
    # Not its stats: those would return the leases of dead processes, which only --fix may.
    numbers = queue.inspection.journal_numbers()
    problem = why_unkept(
        numbers["durability"],
        numbers["journal_error"],
        queue.has_writer(),
        unwritten(numbers["journal_lag"], numbers["journal_waiting"]),
    )
    if problem is not None:
        yield _make_finding(namespace, "disk", queue.name, problem)


def _find_dead(registry: Namespace, queue: LocalQueue) -> Iterator[dict[str, Any]]:
    for _, number, pid, process, leases, _ in queue.attached():
        if not registry.processes.is_alive(number):
            who = f"process {pid} ({process.decode('utf-8', 'replace')}) is dead"
            held = f"; leased: {leases}" if leases else ""
            yield _make_finding(registry.name, "attachment", queue.name, who + held)


def _find_copies(registry: Namespace, queue: LocalQueue) -> Iterator[dict[str, Any]]:
    for _, _, sequence, _ in queue.transfer.orphans():
        what = f"the process that moved message {sequence} here died before it finished"
        yield _make_finding(registry.name, "copy", queue.name, what)


# ---- within a stream ----


def _find_half_made_streams(registry: Namespace, fix: bool) -> Iterator[tuple[str, str]]:
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


def _find_stream(registry: Namespace, name: str, fix: bool) -> list[dict[str, Any]]:
    """Leftovers of dead processes in a stream, removed if ``fix``, and what is unusable."""
    try:
        control = streams.look_at(registry, name)
        if control is None or control.deleted:
            return []
        with attach(registry, name) as stream:
            return [*_find_dead_holds(registry, stream, fix), *_find_stream_disk(registry, stream)]
    except (NoSuchStream, StreamDeleted):
        return []
    except (ShmqError, OSError) as error:
        return [_make_finding(registry.name, "stream", name, str(error))]


def _find_dead_holds(
    registry: Namespace, stream: LocalStream, fix: bool
) -> Iterator[dict[str, Any]]:
    for log in stream.logs:
        for number, owner, _, _ in log.holders():
            if owner and not registry.processes.is_alive(owner):
                if fix:
                    log.drop_of(number, owner)
                what = f"partition {log.number} is held by process {owner}, which is dead"
                yield _make_finding(registry.name, "hold", stream.name, what, fix)


def _find_stream_disk(registry: Namespace, stream: LocalStream) -> Iterator[dict[str, Any]]:
    kept = all(log.writer and registry.processes.is_alive(log.writer) for log in stream.logs)
    problem = why_unkept(stream.options.durability, None, kept)
    if problem is not None:
        yield _make_finding(registry.name, "disk", stream.name, problem)
