"""The files that ``format("dmsq")`` reads, and their messages."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql.datasource import InputPartition

from shmq.disk.persistence.recovery import settle_moves
from shmq.disk.storage.disk import ReadOnly
from shmq.disk.storage.paths import SUFFIX, catalog
from shmq.disk.storage.queue_files import QueueFiles, Skipped
from shmq.disk.storage.queue_reader import Part, open_parts, open_queue
from shmq.errors import (
    DamagedFile,
    FileError,
    IncompatibleFile,
    InvalidOption,
    NoSuchQueue,
    ShmqError,
)
from shmq.spark.dmsq.bounds import Bounds
from shmq.suggestions import suggest

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def directory_of(path: str | None) -> ReadOnly:
    """The directory at ``path``, which may be a ``file:`` URL.

    Raises :class:`~shmq.InvalidOption` if no readable directory exists.
    """
    if path is None:
        raise InvalidOption(
            "say which directory: .load(PATH), of a namespace's data directory or of a backup"
        )
    found = Path(_make_local(path)).absolute()
    if found.is_file():
        hint = f": load {str(found.parent)!r}, and name the queue with the option queue"
        raise InvalidOption(f"path={path!r} is a file, and not a directory of them{hint}")
    if not found.is_dir():
        raise InvalidOption(f"path={path!r} is not a directory: name one with .dmsq files in it")
    return ReadOnly(found)


def queues_in(
    disk: ReadOnly, names: tuple[str, ...] | None, pattern: re.Pattern[str] | None
) -> tuple[str, ...]:
    """The queues to read: the named ones, those that match the pattern, or else all with files.

    Raises :class:`~shmq.NoSuchQueue` for a named queue without files, and if no queue has any.
    Raises :class:`~shmq.ShmqError` if the directory cannot be read.
    """
    try:
        found = [
            name
            for name, files in catalog([entry.name for entry in disk.directory.iterdir()]).items()
            if files.snapshot or files.segments
        ]
    except OSError as error:
        where = str(disk.directory)
        raise ShmqError(f"path={where!r} cannot be read: {error.strerror or error}") from None
    if not found:
        raise NoSuchQueue(f"there are no files of queues, NAME{SUFFIX}, in {disk.directory}")
    if names is None:
        return tuple(name for name in found if pattern is None or pattern.fullmatch(name))
    for name in names:
        if name not in found:
            raise NoSuchQueue(
                f"there are no files of queue {name!r} in {disk.directory}: {suggest(name, found)}"
            )
    return names


def _make_local(path: str) -> str:
    if not _SCHEME.match(path):
        return path
    url = urlsplit(path)
    if url.scheme.lower() != "file" or url.netloc not in {"", "localhost"}:
        raise InvalidOption(
            f"path={path!r}: queues' files are read from directories of the hosts that Spark "
            f"runs on: mount it there, or copy it"
        )
    return unquote(url.path)


#: The smallest and a sufficient size of a slice, in bytes of its records. A task walks over all
#: files of the queue, whatever its slice, and holds an index of its slice.
LEAST: Final = 16 << 20
MOST: Final = 256 << 20


@dataclasses.dataclass(frozen=True)
class Slice(InputPartition):
    """The messages of a queue with the sequence numbers ``first`` to ``last``."""

    queue: str
    #: The queue's identity when the read was planned.
    hash_key: int
    #: Its files.
    parts: tuple[Part, ...]
    first: int
    last: int
    #: Messages that are still in the files but were moved to another queue.
    gone: tuple[int, ...] = ()


def shares(sizes: Sequence[int], least: int | None) -> list[int]:
    """How many slices each queue, given its size in bytes, is cut into: ``least`` or more in all.

    Without ``least`` there are as many slices as this machine has cores, or a multiple, unless
    they would be too small.
    """
    total = sum(sizes)
    cores = len(os.sched_getaffinity(0))
    wanted = least or -(-max(1, total) // (MOST * cores)) * cores
    smallest = 1 if least else LEAST
    return [
        max(1, min(-(-wanted * size // total) if total else 1, size // smallest)) for size in sizes
    ]


def cut(first: int, last: int, spread: tuple[int, int, list[int]], count: int) -> list[
    tuple[int, int]
]:  # fmt: skip
    """The numbers ``first`` to ``last`` in up to ``count`` ranges of about equal size in bytes.

    ``spread`` is the distribution of the bytes over the numbers:
    :meth:`~shmq.disk.storage.queue_files.QueueFiles.spread`.
    """
    least, width, sums = spread
    found: list[tuple[int, int]] = []
    begin, so_far, total = first, 0, sum(sums)
    for place, size in enumerate(sums):
        so_far += size
        end = least + (place + 1) * width - 1
        whole = so_far * count >= total * (len(found) + 1)
        if whole and begin <= end < last and len(found) < count - 1:
            found.append((begin, end))
            begin = end + 1
    return [*found, (begin, last)]


log = logging.getLogger("shmq")

#: How damage is handled: it is an error, or it is skipped and counted.
FAILFAST: Final = "FAILFAST"
DROPMALFORMED: Final = "DROPMALFORMED"

#: How many ranges of sequence numbers a queue is divided into, to see where its bytes are.
_RANGES: Final = 4096


class OpenedFiles:
    """The opened files of some queues, as of one moment."""

    def __init__(self) -> None:
        self.chains: dict[str, tuple[QueueFiles, list[Part]]] = {}
        #: The skipped places, each with its queue.
        self.skipped: list[tuple[str, Skipped]] = []


class Files:
    """The directory that the options name, and the queues in it that they select.

    Raises :class:`~shmq.InvalidOption` and :class:`~shmq.NoSuchQueue`.
    """

    def __init__(self, chosen: Mapping[str, Any]) -> None:
        self.disk = directory_of(chosen["path"])
        self.queues = queues_in(self.disk, chosen["queue"], chosen["queuePattern"])
        self.salvage = chosen["mode"] == DROPMALFORMED

    @contextlib.contextmanager
    def look(self) -> Iterator[OpenedFiles]:
        """Read the files of the queues, every byte; they are open in the block.

        A message that was being moved between two of them counts in the target queue. Raises
        :class:`~shmq.FileError`; for damage, with file and offset, unless damage is skipped.
        """
        looked = OpenedFiles()
        try:
            for queue in self.queues:
                self._read_queue(queue, looked)
            settle_moves([chain for chain, _ in looked.chains.values()])
            for queue, skipped in looked.skipped:
                log.warning("queue %s: %s", queue, skipped)
            yield looked
        finally:
            for chain, _ in looked.chains.values():
                chain.close()

    def slices(self, bounds: Bounds, least: int | None) -> list[Slice]:
        """The messages within the bounds, cut into slices for ``least`` tasks or more."""
        with self.look() as looked:
            wanted = [queue for queue in looked.chains if bounds.has(queue)]
            chains = [looked.chains[queue] for queue in wanted]
            counts = shares([chain.bytes for chain, _ in chains], least)
            return [
                Slice(queue, chain.hash_key, tuple(parts), *ends, tuple(chain.gone))
                for queue, (chain, parts), count in zip(wanted, chains, counts, strict=True)
                for ends in _split_ranges(chain, bounds, count)
            ]

    def open(self, part: Slice) -> QueueFiles:
        """The messages of the slice, from the files as they were planned.

        If the queue's writer has replaced them since, the current files are read. Raises
        :class:`~shmq.FileError`.
        """
        numbers = (part.first, part.last)
        try:
            chain = open_parts(self.disk, part.parts, salvage=self.salvage, numbers=numbers)
            if chain is None:
                log.info("the files of queue %s were replaced: reading the new ones", part.queue)
                chain, _ = open_queue(self.disk, part.queue, salvage=self.salvage, numbers=numbers)
        except OSError as error:
            raise _make_unreadable_error(self.disk, part.queue, error) from error
        if chain.hash_key != part.hash_key:
            chain.close()
            raise FileError(
                f"queue {part.queue!r} in {self.disk.directory} was deleted and recreated while "
                f"it was read: read it again"
            )
        chain.discard(part.gone)
        return chain

    def _read_queue(self, queue: str, looked: OpenedFiles) -> None:
        try:
            chain, parts = open_queue(self.disk, queue, salvage=self.salvage)
        except OSError as error:
            raise _make_unreadable_error(self.disk, queue, error) from error
        except IncompatibleFile:
            raise
        except FileError as error:
            looked.skipped.append((queue, self._skip(error)))
            return
        looked.chains[queue] = (chain, parts)
        looked.skipped += [(queue, skipped) for skipped in chain.skipped]

    def _skip(self, error: FileError) -> Skipped:
        """The skipped place if nothing of a queue can be read. Raises unless damage is skipped."""
        if isinstance(error, DamagedFile):
            if not self.salvage:
                advice = "the option mode=DROPMALFORMED passes over what is damaged"
                raise DamagedFile(error.path, error.offset, f"{error.what}; {advice}") from error
            return Skipped(error.path, error.offset, 0, error.what)
        if not self.salvage:
            raise error
        return Skipped(str(self.disk.directory), 0, 0, str(error))


def _split_ranges(chain: QueueFiles, bounds: Bounds, count: int) -> Sequence[tuple[int, int]]:
    if not chain.messages:
        return []
    last = min(bounds.last, chain.last_seq)
    if bounds.first > last:
        return []
    return cut(bounds.first, last, chain.spread(_RANGES), count)


def _make_unreadable_error(disk: ReadOnly, queue: str, error: OSError) -> ShmqError:
    where = error.filename or disk.directory
    return FileError(f"queue {queue!r}: {where} cannot be read: {error.strerror or error}")
