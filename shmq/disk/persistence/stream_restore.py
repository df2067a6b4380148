"""Restores streams from files without a writer: a backup, or the files of a damaged stream."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shmq.disk.persistence.conflicts import set_stream_aside
from shmq.disk.persistence.stream_recovery import StoredStream, rebuild_stream, stored_stream
from shmq.disk.persistence.stream_salvage import salvage_stream
from shmq.disk.storage.disk import Disk, opened, read_pieces, write_file
from shmq.disk.storage.erase import erase_stream, is_carded
from shmq.disk.storage.inventory import files_below
from shmq.disk.storage.paths import CARD, STREAMS, is_stream_file, stream_directory, streams_among
from shmq.disk.storage.progress import Report, Step, bytes_of, silent
from shmq.errors import FileError, NoSuchStream, SegmentError, StreamExists
from shmq.host.namespace import streams as stream_registry
from shmq.host.namespace.namespace import Namespace

#: The result for a queue or stream: restored, restored from intact parts, already there (left as
#: it is), damaged (not restored), foreign (not written by shmq, and not copied).
RESTORED: Final = "restored"
SALVAGED: Final = "salvaged"
THERE: Final = "there"
DAMAGED: Final = "damaged"
FOREIGN: Final = "foreign"


@dataclass(frozen=True, slots=True)
class Restored:
    """Something that was to be restored, and the result."""

    #: "queue", "stream", "table", "file" for one that belongs to none of these and that the next
    #: writer reads, or "transactions" for those of a damaged file.
    kind: str
    name: str
    state: str
    #: The messages, records or transactions.
    count: int = 0
    #: What is wrong with its files.
    problems: list[str] = field(default_factory=list)


def restore_streams(
    registry: Namespace,
    disk: Disk,
    own: Path,
    names: Sequence[str] | None,
    *,
    salvage: bool,
    report: Report = silent,
) -> list[Restored]:
    """Restore the streams that ``disk`` has files of, or only ``names``.

    ``own`` is the namespace's directory, which gets their files. Needs the registry lock.
    Raises :class:`~shmq.NoSuchStream`, :class:`~shmq.ShmqError` and OSError.
    """
    found: dict[str, list[int]] = {}
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if is_carded(disk, name, identity):
            found.setdefault(name, []).append(identity)
    for name in names or ():
        if name not in found:
            raise NoSuchStream(f"there are no files of stream {name!r} in {disk.directory}")
    wanted = sorted(found) if names is None else list(dict.fromkeys(names))
    return [
        _restore(registry, disk, Disk(own), name, found[name], salvage=salvage, report=report)
        for name in wanted
    ]


def restore_stream_aside(
    registry: Namespace,
    own: Disk,
    aside: str,
    before: str,
    *,
    salvage: bool,
    report: Report = silent,
) -> Restored:
    """Restore the stream whose directory was renamed from ``before`` to ``aside``.

    If that fails, the directory stays aside. Needs the registry lock. Raises
    :class:`~shmq.StreamExists`, :class:`~shmq.ShmqError` and OSError.
    """
    ((name, identity),) = streams_among([Path(before).name])
    _check_name_is_free(registry, own, name)
    if CARD not in own.under(aside).names():
        return Restored(
            "stream", name, DAMAGED, 0, [f"{own.path(aside)} has no card: it was deleted"]
        )
    erase_stream(own, name, identity)  # leftovers without a metadata file
    streams = own.under(STREAMS)
    own.rename(aside, before)
    streams.sync_directory()
    done = None
    try:
        done = _restore(registry, own, own, name, [identity], salvage=salvage, report=report)
    finally:
        if done is None or done.state == DAMAGED:
            own.rename(before, aside)
            streams.sync_directory()
    return done


def _check_name_is_free(registry: Namespace, own: Disk, name: str) -> None:
    """Raises StreamExists if there is a stream of that name, or files of one."""
    if _is_in_memory(registry, name):
        raise StreamExists(
            f"stream {name!r} exists: the files set aside can be restored only under that name: "
            f"delete that stream first (shmq delete --kind stream {name})"
        )
    for other, identity in streams_among(own.under(STREAMS).names()):
        if other == name and is_carded(own, name, identity):
            raise StreamExists(
                f"{own.path(stream_directory(name, identity))} has a stream {name!r}: restore "
                f"it (shmq restore --stream {name}), or delete it (shmq delete --kind stream "
                f"{name}), before another of that name"
            )


def _restore(
    registry: Namespace,
    disk: Disk,
    own: Disk,
    name: str,
    identities: list[int],
    *,
    salvage: bool,
    report: Report,
) -> Restored:
    if _is_in_memory(registry, name):
        return Restored("stream", name, THERE)
    reading = f"reading stream {name!r}"
    read = (stored_stream(disk, name, each, report, reading) for each in identities)
    lives = [one for one in read if one is not None]
    stored = max(lives, key=lambda one: one.written)
    if stored.error is not None and not salvage:
        return Restored("stream", name, DAMAGED, 0, [str(stored.error)])
    identity = stored.identity
    problems: list[str] = []
    if disk.directory != own.directory:
        problems += _copy_stream(disk, own, name, identity, report)
    try:
        problems += salvage_stream(own, name, identity, report) if salvage else []
        again = stored_stream(own, name, identity, report, f"restoring stream {name!r}")
        if again is None:
            raise FileError(f"{own.path(stream_directory(name, identity))} has no card")
        if again.error is not None:
            raise again.error
    except FileError as error:
        return Restored("stream", name, DAMAGED, 0, [str(error)])
    rebuild_stream(registry, again)
    return Restored(
        "stream", name, SALVAGED if problems else RESTORED, _count_records(again), problems
    )


def _count_records(stored: StoredStream) -> int:
    return sum(end.next - end.earliest for end in stored.ends)


def _is_in_memory(registry: Namespace, name: str) -> bool:
    try:
        stream_registry.open_stream(registry, name)
    except NoSuchStream:  # a half created one was removed
        return False
    except SegmentError:
        return True
    return True


def _copy_stream(disk: Disk, own: Disk, name: str, identity: int, report: Report) -> list[str]:
    """Copy the stream's files to ``own``; other files of its name are set aside there.

    Returns which of its files were not copied, and why.
    """
    streams = own.under(STREAMS)
    streams.make()
    unfinished = f".{name}.{identity:016x}.new"
    shutil.rmtree(streams.path(unfinished), ignore_errors=True)
    source = disk.under(stream_directory(name, identity))
    found = [path for path in files_below(source) if is_stream_file(path)]
    files = [path for path in found if is_regular(source.path(path))]
    step = Step(report, f"copying stream {name!r}", bytes_of(map(source.path, files)))
    _copy(source, streams.under(unfinished), files, step)
    for other, key in streams_among(streams.names()):
        if other == name:
            set_stream_aside(own, name, stream_directory(name, key), "makes way for a restored one")
    streams.rename(unfinished, f"{name}.{identity:016x}")
    streams.sync_directory()
    return [f"{source.path(path)} is not a regular file" for path in found if path not in files]


def is_regular(path: Path) -> bool:
    """Whether it is a file, and not a link to one."""
    return path.is_file() and not path.is_symlink()


def _copy(source: Disk, target: Disk, files: Sequence[str], step: Step) -> None:
    """Copy the files of a stream durably; the metadata file comes last."""
    target.make()
    for below in sorted({str(Path(path).parent) for path in files}, reverse=True):  # "." is last
        there = target.under(below)
        there.make()
        for path in sorted(files, key=lambda path: path == CARD):
            if str(Path(path).parent) == below:
                copy_file(source.under(below), there, Path(path).name, step)
        there.sync_directory()


def copy_file(source: Disk, target: Disk, name: str, step: Step | None = None) -> None:
    """Copy a file and sync it, but not its directory. Raises OSError."""
    with opened(source, name) as file:
        pieces = read_pieces(source, file, source.size(file))
        write_file(target, name, pieces, None if step is None else step.add)
