"""Adds partitions to a stream while it is in use.

The new partitions are created first. Then all active ones are *sealed*, one by one, and last the
new ones become active. So a key's records are first in the sealed partitions, then in one of the
new ones, never in both at a time. An appender that finds its partition sealed waits for the
registry lock and then finds the new ones, or completes what a dead process began. All of it
happens under that lock.

A process that dies before the stream has its intended shape leaves files, which the next
repartition replaces and the stream's deletion removes. After that, the next process that opens
the stream, appends to it or repartitions it completes the work.

The files of a durable stream follow: its writer begins to write the new partitions once the
sealed ones are completely on disk, and records them in the stream's metadata file before their
first write. So the files have the old shape, or the new one with all older records.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from shmq.errors import InvalidOption, NoSpace, StreamDeleted
from shmq.host.namespace import streams
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import as_no_space
from shmq.native import _core, _stream
from shmq.native._stream import MAX_PARTITIONS

#: Called with the new partitions before anything is appended to them.
Prepare = Callable[[list[_stream.Partition]], object]

_HEADER: Final = 4096


def repartition(
    namespace: Namespace, control: _stream.Control, partitions: int, prepare: Prepare
) -> None:
    """Send records to so many new partitions. The caller has checked that it is an integer.

    Raises InvalidOption, StreamDeleted, NoSpace.
    """
    with namespace.locked():
        finish(namespace, control)
        begin, count = control.shape
        _check(control.name, partitions, begin, count)
        prepare(_make(namespace, control, count, partitions))
        control.intend(count, count + partitions)
        finish(namespace, control)


def _check(name: str, partitions: int, begin: int, count: int) -> None:
    if partitions <= count - begin:
        raise InvalidOption(
            f"partitions={partitions}: stream {name!r} has {count - begin} that take records, "
            f"and only more are possible"
        )
    if count + partitions > MAX_PARTITIONS:
        raise InvalidOption(
            f"partitions={partitions}: with the {count} that stream {name!r} has already these "
            f"are more than {MAX_PARTITIONS}: make another stream"
        )


def _make(
    namespace: Namespace, control: _stream.Control, begin: int, partitions: int
) -> list[_stream.Partition]:
    """Create the partitions from ``begin`` on, replacing those that a dead process left."""
    made: list[_stream.Partition] = []
    numbers = range(begin, begin + partitions)
    try:
        for number in numbers:
            streams.partition_path(namespace, control.name, number).unlink(missing_ok=True)
            _core.mark()
            fd = streams.create_partition_file(namespace, control.name, number)
            made.append(_stream.Partition.create(fd, control, number, behind=begin))
    except BaseException as error:
        for number in reversed(numbers):  # so that a death in the meantime leaves no gap
            with suppress(OSError):
                streams.partition_path(namespace, control.name, number).unlink()
        if isinstance(error, OSError) and not isinstance(error, NoSpace):
            raise as_no_space(error, _HEADER) from error
        raise
    return made


def finish(namespace: Namespace, control: _stream.Control) -> None:
    """Complete a repartition that was started. Raises StreamDeleted."""
    with namespace.locked():
        if control.deleted:
            raise StreamDeleted(f"stream {control.name!r} was deleted")
        shape = control.next_shape
        if shape is None:
            return
        sealed = [
            streams.open_partition(namespace, control, number) for number in range(*control.shape)
        ]
        for log in sealed:
            log.seal()
        control.reshape(*shape)
        for log in sealed:
            log.wake()  # so that waiters for records look for new partitions
