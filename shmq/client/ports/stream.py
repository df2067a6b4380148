"""The port of a stream: what a transport does for the handle that keeps the contract."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shmq import api
from shmq.client.ports.group import GroupStore
from shmq.client.ports.share import Lender
from shmq.client.ports.steps import Steps
from shmq.errors import Unsupported

if TYPE_CHECKING:
    from shmq.errors import DamagedFile, OffsetOutOfRange

#: What a read finds in each partition: records, or why they cannot be read.
Found = Mapping[int, "api.Records | DamagedFile | OffsetOutOfRange"]


@dataclasses.dataclass(frozen=True, slots=True)
class Entries:
    """Encoded records to append to one partition, all together."""

    partition: int
    #: See ``pack_records``; with a ``compression`` ``raw_bytes`` long before.
    block: bytes
    count: int
    compression: api.Compression | None = None
    raw_bytes: int = 0
    #: The producer's id, and the first record's sequence; with ``gaps`` sequences may be skipped.
    producer: int | None = None
    sequence: int | None = None
    gaps: bool = False
    #: Whether to return once the records are on disk, and the time to raise NotConfirmed.
    durable: bool = False
    until: float | None = None


class AppendedEntries(NamedTuple):
    """The place of appended records; ``first`` is -1 for duplicates of records that are gone."""

    first: int
    records: int
    timestamp_ns: int
    duplicate: bool


class Floors(Protocol):
    """Keeps records from being overwritten before a subscription has read them."""

    @property
    def number(self) -> int | None:
        """The ``hold`` to `StreamPort.fetch` with; None: a fetch moves no floors."""

    def taking(self, position: Mapping[int, int]) -> Steps[None]:
        """Keep the records of these partitions from these offsets on, and release earlier ones.

        If records from there on are gone, it keeps the remaining ones, and raises OffsetOutOfRange.
        """

    def move(self, position: Mapping[int, int]) -> None:
        """As `taking`, but without a request, and the reader reports the records that are gone."""

    def closing(self) -> Steps[None]:
        """Release all records. May be called again."""

    def drop(self) -> None:
        """As `closing`, without waiting for anything."""


class StreamPort(abc.ABC):
    """A stream of a transport, besides its name, options, identity and partitions.

    Arguments were checked and have no defaults. A method that returns `Steps` is a procedure, which
    the handle runs for a thread or for a task; the others block. All raise StreamDeleted,
    ConnectionLost, and the errors that they name. A transport's class inherits
    :class:`~shmq.client.handles.stream.StreamHandle`, and implements the port, and ``groups``,
    ``delete_group`` and ``close`` of the contract.
    """

    def append_entries(self, entries: Entries) -> AppendedEntries:
        """Append the records, without waiting for room.

        Raises Full, MessageTooLarge, OutOfSequence, NotConfirmed, InvalidOption for a block that
        is none, and PartitionSealed. The client of this host appends in C instead.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def fetch(
        self,
        places: Mapping[int, int],
        limit: int,
        max_bytes: int,
        wait: float | None,
        where: str | None = None,
        hold: tuple[int, Mapping[int, int]] | None = None,
    ) -> Steps[Found]:
        """The records available in these partitions from these offsets on, in this order.

        Waits up to ``wait`` seconds (None: without limit) for the first, and may return sooner
        without any. A partition has up to ``limit`` records, and the first one however large;
        partitions that have none are left out, unless ``where`` left out records: those have no
        records, and the offset to continue at. An error of one partition does not concern the
        others. ``hold``: the number of floors that move to a position before reading.
        """

    def fetch_now(
        self, places: Mapping[int, int], limit: int, max_bytes: int, where: str | None
    ) -> Found:
        """What `fetch` finds without a request or a wait, where that is possible."""
        del places, limit, max_bytes, where
        return {}

    @abc.abstractmethod
    def describe(self) -> Steps[list[api.PartitionOffsets]]:
        """The state of each partition, in order."""

    @abc.abstractmethod
    def refresh(self, waited: bool) -> Steps[None]:
        """Learn of new partitions, if it takes a request; ``waited``: a fetch just did, in vain.

        Optional: a handle knows them otherwise.
        """

    @abc.abstractmethod
    def find(self, partition: int, timestamp_ns: int) -> int:
        """The offset of the first record from that time on, or of the next one to come."""

    def find_produced(self, producer: int) -> list[int | None]:
        """The producer's last sequence in each partition, in order. Raises Unsupported."""
        raise Unsupported(f"this stream does not say what producer {producer} has appended")

    @abc.abstractmethod
    def change_partitions(self, partitions: int) -> range:
        """Append to so many new partitions from now on; returns their numbers."""

    @abc.abstractmethod
    def new_floors(self) -> Floors:
        """The floors of a new subscription that blocks. Raises InvalidOption, Unsupported."""

    @abc.abstractmethod
    def open_group(self, name: str, options: Mapping[str, Any], create: bool) -> GroupStore:
        """The group of that name, made with these options of ``Stream.group`` if there is none.

        Without ``create`` none is made. Raises NoSuchGroup.
        """

    @abc.abstractmethod
    def open_lender(
        self, name: str, member: str, on_damage: api.OnDamage, options: Mapping[str, Any]
    ) -> Lender:
        """Join the share group, made with these options of ``Stream.share`` if there is none."""
