"""The streams of a namespace: opening, creation and removal.

``stream.shmq@NAMESPACE@STREAM``
    the control segment: the stream's options, its wakeup, its groups.
``log.shmq@NAMESPACE@STREAM@PARTITION``
    a partition's records, one segment each.

The control segment is created first, published last and removed last: so what a process that
died while creating or deleting a stream has left is always found and removed. All of it happens
under the registry lock.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shmq.api.stream_options import StreamOptions
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erase_stream
from shmq.disk.storage.stream_meta import Generation
from shmq.errors import (
    DamagedSegment,
    ForeignSegment,
    NoSpace,
    NoSuchStream,
    SegmentError,
    ShmqError,
)
from shmq.host.namespace.folder import file_path
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import as_no_file, as_no_space, new_identity, refuse_foreign
from shmq.host.namespace.wakeups import wakeup_prefix
from shmq.native import _core, _stream
from shmq.native._stream import MAX_PARTITIONS
from shmq.native.descriptors import open_file

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW

#: A stream's segments, mapped.
Opened = tuple[_stream.Control, list[_stream.Partition]]


def control_path(namespace: Namespace, name: str) -> Path:
    """The path of the stream's control segment."""
    return Path(namespace.stream_path(name))


def partition_path(namespace: Namespace, name: str, partition: int) -> Path:
    """The path of the partition's segment."""
    return file_path(namespace.name, "log.", f"@{name}@{partition}")


def _list_partition_paths(namespace: Namespace, name: str) -> list[Path]:
    """The existing segments of partitions, whatever their state, the last one first.

    They are created in order, and removed in reverse order: so any after those that the
    control segment has follow without a gap.
    """
    paths = (partition_path(namespace, name, number) for number in range(MAX_PARTITIONS))
    known = _count_of(namespace, name)
    found = itertools.takewhile(os.path.lexists, itertools.islice(paths, known, None))
    known_paths = (partition_path(namespace, name, number) for number in range(known))
    return [*filter(os.path.lexists, known_paths), *found][::-1]


def _count_of(namespace: Namespace, name: str) -> int:
    """The number of partitions in the control segment; the maximum if that is damaged."""
    try:
        control = look_at(namespace, name)
        return 0 if control is None else min(control.shape[1], MAX_PARTITIONS)
    except NoSuchStream:
        return 0
    except SegmentError:
        return MAX_PARTITIONS


def open_stream(namespace: Namespace, name: str) -> Opened:
    """The stream's segments, mapped. Raises NoSuchStream, SegmentError.

    Removes what a process that died while creating or deleting the stream has left.
    """
    opened = _open_if_whole(namespace, name)
    if opened is not None:
        return opened
    with namespace.locked():
        opened = _open_if_whole(namespace, name)
        if opened is not None:
            return opened
        _remove_files(namespace, look_at(namespace, name))
        _clear(namespace, name)
    raise NoSuchStream.of(name, f"in namespace {namespace.name!r}")


def look_at(namespace: Namespace, name: str) -> _stream.Control | None:
    """The mapped control segment, or None if it is not finished. Removes nothing.

    Raises NoSuchStream, SegmentError.
    """
    path = control_path(namespace, name)
    try:
        fd = _open_own(path)
    except FileNotFoundError:
        raise NoSuchStream.of(name, f"in namespace {namespace.name!r}") from None
    return _stream.Control.attach(fd, name, namespace.processes.own, wakeup_prefix(namespace.name))


def _open_if_whole(namespace: Namespace, name: str) -> Opened | None:
    """The mapped segments; None: look again under the lock. Raises NoSuchStream, SegmentError."""
    control = look_at(namespace, name)
    if control is None or control.deleted:
        return None
    _, count = control.shape
    try:
        return control, [open_partition(namespace, control, p) for p in range(count)]
    except FileNotFoundError as error:
        if _is_gone(namespace, control):
            return None
        raise DamagedSegment(
            f"stream {name!r} lacks the segment {error.filename}: delete the stream"
        ) from None
    except SegmentError:
        if _is_gone(namespace, control):
            return None
        raise


def _is_gone(namespace: Namespace, control: _stream.Control) -> bool:
    """Whether the stream was deleted, or another one has its name by now."""
    try:
        other = look_at(namespace, control.name)
    except (NoSuchStream, SegmentError):
        return True
    return control.deleted or other is None or other.stream_id != control.stream_id


def is_removed(namespace: Namespace, control: _stream.Control) -> bool:
    """Whether the stream has lost its name without being deleted: its memory was removed."""
    try:
        other = look_at(namespace, control.name)
    except NoSuchStream:
        return not control.deleted
    except (SegmentError, OSError):  # unknown
        return False
    return other is not None and other.stream_id != control.stream_id and not control.deleted


def open_partition(
    namespace: Namespace, control: _stream.Control, partition: int
) -> _stream.Partition:
    """A partition's segment, mapped. Raises FileNotFoundError, SegmentError."""
    fd = _open_own(partition_path(namespace, control.name, partition))
    return _stream.Partition.attach(fd, control, partition)


def _open_own(path: Path) -> int:
    try:
        fd = open_file(path, _OPEN)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise as_no_file(error, path) from error
    try:
        refuse_foreign(fd, path)
    except SegmentError:
        os.close(fd)
        raise
    return fd


def make_stream(
    namespace: Namespace,
    name: str,
    options: StreamOptions,
    *,
    identity: int | None = None,
    firsts: Sequence[tuple[int, int]] | None = None,
    eras: Sequence[Generation] = (),
    publish: bool = True,
) -> Opened:
    """Create the segments of a new stream. Needs the registry lock.

    A recovered stream keeps its ``identity`` and, if it was repartitioned, its generations
    ``eras``; ``firsts`` has for each partition the offset of its next record and the time of its
    last, in ns. Without ``publish`` no process can attach until ``Control.publish``. Raises
    NoSpace, ForeignSegment.
    """
    _clear(namespace, name)
    namespace.note(control_path(namespace, name), there=True)
    stream_id = new_identity()
    eras = eras or [Generation(0, options.partitions)]
    given = {**options.as_dict(), "partitions": eras[0].count}
    try:
        fd = _create(control_path(namespace, name))
        control = _stream.Control.create(
            fd,
            name,
            namespace.processes.own,
            wakeup_prefix(namespace.name),
            stream_id,
            identity or new_identity(),
            given,
        )
        logs = _make_partitions(namespace, control, firsts or [(0, 0)] * eras[-1].end, eras)
    except BaseException as error:
        _clear(namespace, name)
        if isinstance(error, OSError) and not isinstance(error, NoSpace):
            raise as_no_space(error, 4096) from error
        raise
    if publish:
        control.publish()
    return control, logs


def _make_partitions(
    namespace: Namespace,
    control: _stream.Control,
    firsts: Sequence[tuple[int, int]],
    eras: Sequence[Generation],
) -> list[_stream.Partition]:
    """Create the partitions; only the last generation is active. Raises OSError, ForeignSegment."""
    logs = []
    for era in eras:
        for partition in era.partitions:
            fd = create_partition_file(namespace, control.name, partition)
            made = _stream.Partition.create(
                fd, control, partition, *firsts[partition], era.begin, era.made
            )
            if era is not eras[-1]:
                made.seal()
            logs.append(made)
    if len(eras) > 1:
        control.reshape(eras[-1].begin, eras[-1].end)
    return logs


def create_partition_file(namespace: Namespace, name: str, partition: int) -> int:
    """Create and open an empty file for a partition. Raises OSError, ForeignSegment."""
    return _create(partition_path(namespace, name, partition))


def _create(path: Path) -> int:
    try:
        fd = open_file(path, _OPEN | os.O_CREAT | os.O_EXCL)
    except OSError as error:
        raise as_no_file(error, path) from error
    _core.mark()
    return fd


def remove_stream(namespace: Namespace, name: str) -> None:
    """Remove the stream, whatever its state, and wake its waiters.

    Raises NoSuchStream, ForeignSegment, and ShmqError if its files cannot be removed.
    """
    control = None
    with namespace.locked():
        try:
            control = look_at(namespace, name)
            if control is not None and not control.deleted:
                _, logs = open_stream(namespace, name)
                control.mark_deleted()
                for log in logs:
                    log.delete()
        except ForeignSegment:
            raise
        except SegmentError:
            pass  # it is removed as is
        _remove_files(namespace, control)
        _clear(namespace, name)


def _remove_files(namespace: Namespace, control: _stream.Control | None) -> None:
    """Remove the files of a deleted stream, durably. Needs the registry lock.

    Raises ShmqError on failure; then the caller must not remove the segments.
    """
    directory = namespace.roles.data_dir
    if control is None or control.options["durability"] == "memory" or directory is None:
        return
    try:
        erase_stream(Disk(directory), control.name, control.identity)
    except OSError as error:
        raise ShmqError(
            f"stream {control.name!r} is deleted, but not its files in {directory}: "
            f"{error.strerror or error}; delete it again once they can be removed"
        ) from error


def _clear(namespace: Namespace, name: str) -> None:
    """Remove the segments of a stream; the control segment last."""
    control = control_path(namespace, name)
    for path in (*_list_partition_paths(namespace, name), control):
        try:
            fd = _open_own(path)
        except FileNotFoundError:
            continue
        os.close(fd)
        path.unlink(missing_ok=True)
        _core.mark()
    namespace.note(control, there=False)
