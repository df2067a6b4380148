"""The files that ``format("dmsq")`` reads, and their messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from shmq.errors import DamagedFile, FileError, IncompatibleFile, ShmqError
from shmq.persistence.recovery import settle_moves
from shmq.spark.dmsq.bounds import Bounds
from shmq.spark.dmsq.directory import directory_of, queues_in
from shmq.spark.dmsq.file_partition import Slice, cut, shares
from shmq.storage.queue_files import QueueFiles, Skipped
from shmq.storage.queue_reader import Part, ReadOnly, open_parts, open_queue

__all__ = ["DROPMALFORMED", "FAILFAST", "Files", "OpenedFiles"]

log = logging.getLogger("shmq")

#: How damage is handled: it is an error, or it is skipped and counted.
FAILFAST: Final = "FAILFAST"
DROPMALFORMED: Final = "DROPMALFORMED"

#: How many ranges of sequence numbers a queue is divided into, to see where its bytes are.
_RANGES: Final = 4096


class OpenedFiles:
    """The opened files of some queues, as of one moment. Must be closed."""

    def __init__(self) -> None:
        self.chains: dict[str, tuple[QueueFiles, list[Part]]] = {}
        #: The skipped places, each with its queue.
        self.skipped: list[tuple[str, Skipped]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for chain, _ in self.chains.values():
            chain.close()


class Files:
    """The directory that the options name, and the queues in it that they select.

    Raises :class:`~shmq.InvalidOption` and :class:`~shmq.NoSuchQueue`.
    """

    def __init__(self, chosen: Mapping[str, Any]) -> None:
        self.disk = directory_of(chosen["path"])
        self.queues = queues_in(self.disk, chosen["queue"], chosen["queuePattern"])
        self.salvage = chosen["mode"] == DROPMALFORMED

    def look(self) -> OpenedFiles:
        """Read the files of the queues, every byte.

        A message that was being moved between two of them counts in the target queue. Raises
        :class:`~shmq.FileError`; for damage, with file and offset, unless damage is skipped.
        """
        looked = OpenedFiles()
        try:
            for queue in self.queues:
                self._look_at(queue, looked)
            settle_moves([chain for chain, _ in looked.chains.values()])
        except BaseException:
            looked.__exit__(None, None, None)
            raise
        for queue, skipped in looked.skipped:
            log.warning("queue %s: %s", queue, skipped)
        return looked

    def slices(self, bounds: Bounds, least: int | None) -> list[Slice]:
        """The messages within the bounds, cut into slices for ``least`` tasks or more."""
        with self.look() as looked:
            wanted = [queue for queue in looked.chains if bounds.has(queue)]
            chains = [looked.chains[queue] for queue in wanted]
            counts = shares([chain.bytes for chain, _ in chains], least)
            return [
                Slice(queue, chain.hash_key, tuple(parts), *ends, tuple(chain.gone))
                for queue, (chain, parts), count in zip(wanted, chains, counts, strict=True)
                for ends in _ranges(chain, bounds, count)
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
            raise _unreadable(self.disk, part.queue, error) from error
        if chain.hash_key != part.hash_key:
            chain.close()
            raise FileError(
                f"queue {part.queue!r} in {self.disk.directory} was deleted and made anew while "
                f"it was read: read it again"
            )
        chain.discard(part.gone)
        return chain

    def _look_at(self, queue: str, looked: OpenedFiles) -> None:
        try:
            chain, parts = open_queue(self.disk, queue, salvage=self.salvage)
        except OSError as error:
            raise _unreadable(self.disk, queue, error) from error
        except IncompatibleFile:
            raise
        except FileError as error:
            looked.skipped.append((queue, self._passed_over(error)))
            return
        looked.chains[queue] = (chain, parts)
        looked.skipped += [(queue, skipped) for skipped in chain.skipped]

    def _passed_over(self, error: FileError) -> Skipped:
        """The skipped place if nothing of a queue can be read. Raises unless damage is skipped."""
        if isinstance(error, DamagedFile):
            if not self.salvage:
                advice = "the option mode=DROPMALFORMED passes over what is damaged"
                raise DamagedFile(error.path, error.offset, f"{error.what}; {advice}") from error
            return Skipped(error.path, error.offset, 0, error.what)
        if not self.salvage:
            raise error
        return Skipped(str(self.disk.directory), 0, 0, str(error))


def _ranges(chain: QueueFiles, bounds: Bounds, count: int) -> Sequence[tuple[int, int]]:
    if not chain.messages:
        return []
    last = min(bounds.last, chain.last_seq)
    if bounds.first > last:
        return []
    return cut(bounds.first, last, chain.spread(_RANGES), count)


def _unreadable(disk: ReadOnly, queue: str, error: OSError) -> ShmqError:
    where = error.filename or disk.directory
    return FileError(f"queue {queue!r}: {where} cannot be read: {error.strerror or error}")
