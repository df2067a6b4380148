"""Reading the records of a durable stream that are only in its files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import partition_directory
from shmq.disk.storage.stream_files import StreamFiles
from shmq.disk.storage.stream_segment import Block
from shmq.errors import DamagedFile, OffsetOutOfRange, ShmqError
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.native import _file, _stream

#: The most bytes of files that one read takes. They are read several times, so they should fit into
#: the processor's cache. More values, freed at once, would be given back to the kernel, which
#: zeroes the memory for the next read.
AT_ONCE: Final = 256 << 10


class ArchivedRecords:
    """The files of one stream, as far as its writer has published them.

    Threads may share it. Methods raise :class:`~shmq.DamagedFile`, with the next readable offset,
    for damaged records, and :class:`~shmq.ShmqError` for files that cannot be read.
    """

    def __init__(self, namespace: Namespace, name: str, identity: int) -> None:
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lock = new_lock()
        self._directory: Path | None = None
        self._files: dict[int, StreamFiles] = {}

    def records(
        self, log: _stream.Partition, offset: int, limit: int, most_bytes: int, end: int | None
    ) -> _stream.Records | None:
        """The records from ``offset`` on, of one file; None: they are in none.

        Records of a closed file lie in its mapping, unless they were compressed; the mapping lives
        as long as they do. Raises :class:`~shmq.OffsetOutOfRange` if the files no longer have them
        either.
        """
        block = self._read_block(log, offset, limit, most_bytes, end)
        if block is None:
            return None
        data = block.data if block.closed else _file.entries(block.data)
        in_place = block.closed
        return _stream.records_of(data, log.number, offset, limit, end=end, in_place=in_place)

    def raw(
        self, log: _stream.Partition, offset: int, limit: int, most_bytes: int, end: int | None
    ) -> tuple[bytes, int] | None:
        """The encoded records, as for `records`, and the offset after them."""
        block = self._read_block(log, offset, limit, most_bytes, end)
        return None if block is None else (_file.entries(block.data), block.next)

    def before(self, log: _stream.Partition, ring: int) -> int | None:
        """The first offset that can be read from a file; None: none before ``ring`` can.

        ``ring`` is the first offset of the ring. No gap is between the files and the ring;
        some records are in both.
        """
        files = self._find_files(log.number)
        if files is None:
            return None
        try:
            found = files.earliest()
        except OSError as error:
            raise self._make_unreadable_error(error) from error
        return None if found is None or found >= min(ring, log.synced) else found

    def times(self, log: _stream.Partition) -> tuple[int, int]:
        """The times of the first and of the last record, in ns; 0: there is none."""
        files = self._find_files(log.number)
        if files is None:
            return 0, 0
        try:
            return files.first_time(log.synced) or 0, files.last_time(log.synced) or 0
        except OSError as error:
            raise self._make_unreadable_error(error) from error

    def at(self, log: _stream.Partition, timestamp_ns: int) -> int | None:
        """The offset of the first record from that time on; None: all records here are older."""
        files = self._find_files(log.number)
        try:
            return None if files is None else files.at(timestamp_ns, log.synced)
        except OSError as error:
            raise self._make_unreadable_error(error) from error

    def size(self, log: _stream.Partition) -> int:
        """The size of all files of the partition, in bytes."""
        files = self._find_files(log.number)
        return 0 if files is None else files.size()

    def _read_block(
        self, log: _stream.Partition, offset: int, limit: int, most_bytes: int, end: int | None
    ) -> Block | None:
        until = log.synced if end is None else min(end, log.synced)
        files = self._find_files(log.number)
        if files is None or offset >= until:
            return None
        try:
            block = files.block(offset, until, min(most_bytes, AT_ONCE), limit)
        except OSError as error:
            raise self._make_unreadable_error(error) from error
        except DamagedFile as error:
            raise _make_partition_error(error, log, files, offset) from error
        if block is None:
            if self._namespace.roles.data_dir != self._directory:  # the files were moved
                return self._read_block(log, offset, limit, most_bytes, end)
            self._raise_out_of_range(log, files, offset)
        return block

    def whole(self, log: _stream.Partition, offset: int, limit: int) -> int:
        """How many records from ``offset`` on can be read at once, of at most ``limit``.

        Records that are in no file count as readable.
        """
        block = self._read_block(log, offset, limit, AT_ONCE, None)
        return limit if block is None else block.next - offset

    def _raise_out_of_range(self, log: _stream.Partition, files: StreamFiles, offset: int) -> None:
        earliest = files.earliest()
        if earliest is not None and offset < earliest:
            raise OffsetOutOfRange(
                f"offset {offset} of partition {log.number} of stream {self._name!r} is gone: "
                f"the oldest on disk is {earliest}; seek to it to continue, or retain more "
                f"(retention_bytes, retention_seconds)",
                offset,
                earliest,
                log.bounds()[1],
                log.number,
            )

    def _find_files(self, partition: int) -> StreamFiles | None:
        """The partition's files; None if none were written."""
        directory = self._namespace.roles.data_dir
        if directory is None:
            return None
        with self._lock:
            if directory != self._directory:  # the files were moved
                self._files, self._directory = {}, directory
            found = self._files.get(partition)
            if found is None:
                below = partition_directory(self._name, self._identity, partition)
                found = self._files[partition] = StreamFiles(Disk(directory / below))
        return found

    def _make_unreadable_error(self, error: OSError) -> ShmqError:
        return ShmqError(
            f"the files of stream {self._name!r} cannot be read: {error.strerror or error}"
            f"{f': {error.filename}' if error.filename else ''}"
        )


def _make_partition_error(
    error: DamagedFile, log: _stream.Partition, files: StreamFiles, offset: int
) -> DamagedFile:
    """The error, with the partition and the offsets that cannot be read."""
    first = offset if error.first_offset is None else error.first_offset
    following = error.next_offset
    if following is None:
        following = files.next_whole(offset, log.synced)
    ring = log.bounds()[0]
    if offset < ring < following:
        following = ring  # from there on they are in memory
    return DamagedFile(error.path, error.offset, error.what, log.number, first, following)
