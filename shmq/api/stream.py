"""The contract of a stream: partitions of records that many read and nobody takes away."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from shmq.api.closing import Closing
from shmq.api.options import Confirm, check_seconds
from shmq.errors import Unsupported

if TYPE_CHECKING:
    from shmq.api.group import Assignment, Group, GroupStart, GroupSummary
    from shmq.api.producer import Acks, Partitioner, Producer
    from shmq.api.record import Appended, AppendedRange, OnDamage, Record, Records
    from shmq.api.share import Share
    from shmq.api.stream_options import StreamOptions
    from shmq.api.subscription import Policy, Subscription

__all__ = [
    "AsyncReader",
    "Compression",
    "PartitionOffsets",
    "PartitionRate",
    "Reader",
    "Start",
    "Stream",
    "StreamSummary",
]

#: Where to begin: the oldest record, behind the newest, an offset of each partition, or the
#: first record from that time on, in seconds since 1970.
Start = Literal["earliest", "latest"] | Mapping[int, int] | float

#: A partition is hot that gets more than so many times the mean.
HOT: Final = 3.0

#: How the records of a batch are compressed; None: they are not.
Compression = Literal["lz4", "zstd"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """A line of the list of streams."""

    #: The stream's name.
    name: str
    #: How many partitions it has.
    partitions: int
    #: Records that can be read, of all partitions.
    records: int
    #: The bytes they take.
    bytes: int
    #: ``"memory"`` or ``"journal"``.
    durability: str = "memory"
    #: Why the stream cannot be used, and its numbers are 0; None if it can.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """What a partition holds at this moment."""

    #: The partition.
    partition: int
    #: The offset of the oldest record that can be read.
    earliest: int
    #: The offset that the next record will have; as ``earliest`` if it is empty.
    latest: int
    #: The time by which the oldest record is found (see ``Stream.at``), in seconds since 1970;
    #: None if it is empty.
    earliest_timestamp: float | None
    #: The same of the newest record; None if it is empty.
    latest_timestamp: float | None
    #: Bytes that the records take, their frames included.
    bytes: int
    #: Whether nothing is appended any more: the stream was repartitioned.
    sealed: bool = False
    #: Its keys were in the partitions before this one until it was made: they come first.
    behind: int = 0
    #: When the partition was made, in seconds since 1970.
    created_at: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRate:
    """How many records a partition gets."""

    #: The partition.
    partition: int
    #: Records a second.
    rate: float
    #: The same as a multiple of the mean of all that take records; 0 if none gets any.
    share: float
    #: Whether that is more than 3, and the partition is not sealed.
    hot: bool


class Reader(Closing):
    """An iterator over a stream's records that follows it.

    Within a partition the records come in order of their offsets, between partitions in
    turns. One that reads all partitions takes up those that come: see `Stream.repartition`.
    It keeps its own position and takes nothing away from anybody. One thread at a time
    uses it.
    """

    @property
    @abc.abstractmethod
    def position(self) -> dict[int, int]:
        """The offset of the record that comes next, of each partition it reads."""

    @property
    @abc.abstractmethod
    def lost(self) -> int:
        """How many records were gone before it came to them, with ``lapped="skip"``."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records were passed over, with ``on_damage="skip"``: files are damaged."""

    @abc.abstractmethod
    def seek(self, position: Mapping[int, int]) -> None:
        """Go on elsewhere in these partitions. Raises :class:`~shmq.InvalidOption`."""

    @abc.abstractmethod
    def poll(self, timeout: float | None = 0.0) -> list[Records]:
        """What there is, at most ``limit`` records of each partition, waiting for the first.

        None: without end. Empty if nothing came. The position is behind them. Where a file is
        damaged it raises :class:`~shmq.DamagedFile` with the partition and the offsets, after
        what the other partitions have, and again and again: `seek` goes on elsewhere.
        """

    @abc.abstractmethod
    def __next__(self) -> Record: ...

    def __iter__(self) -> Iterator[Record]:
        return self

    @abc.abstractmethod
    def close(self) -> None:
        """End the iteration. May be called again."""


class AsyncReader(abc.ABC):
    """As :class:`Reader`, asynchronous. It is for one task at a time."""

    @property
    @abc.abstractmethod
    def position(self) -> dict[int, int]:
        """The offset of the record that comes next, of each partition it reads."""

    @property
    @abc.abstractmethod
    def lost(self) -> int:
        """How many records were gone before it came to them, with ``lapped="skip"``."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records were passed over, with ``on_damage="skip"``: files are damaged."""

    @abc.abstractmethod
    async def __anext__(self) -> Record: ...

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End the iteration. May be called again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Stream(Closing):
    """A stream of records in partitions. Threads may share a handle.

    Every method raises :class:`~shmq.StreamDeleted` once the stream was deleted, and
    :class:`~shmq.ShmqError` once the handle is closed. An argument of a partition that there
    is not raises :class:`~shmq.InvalidOption`.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The stream's name."""

    @property
    @abc.abstractmethod
    def options(self) -> StreamOptions:
        """What it was made with."""

    @property
    @abc.abstractmethod
    def identity(self) -> int:
        """Another number for each stream, even of the same name."""

    @property
    @abc.abstractmethod
    def partitions(self) -> int:
        """How many partitions there are: 0 to ``partitions - 1``."""

    @property
    def open_partitions(self) -> range:
        """Those that take records: all, until the stream is repartitioned."""
        return range(self.partitions)

    def repartition(self, partitions: int) -> range:
        """Have records go to so many new partitions from now on; which these are.

        There must be more of them than took records until now; these are sealed: they keep
        their records, and their numbers, and nothing is appended to them. Nobody has to stop.
        A key's records stay in order: readers of all partitions, and members of groups, read
        a new partition only once they are at the end of all that were sealed for it, a group
        as far as it has committed. Who reads a partition by its number minds that himself.

        What is on disk of a stream with ``durability="journal"`` follows: nothing of a new
        partition is confirmed before all that is in the sealed ones is on disk.

        Raises :class:`~shmq.InvalidOption` and :class:`~shmq.NoSpace`.
        """
        raise Unsupported(f"this stream cannot get {partitions} partitions: connect on its host")

    # ---- appending ----

    @abc.abstractmethod
    def append(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        timestamp: float | None = None,
        partition: int | None = None,
        codec: str | None = None,
        block: bool | None = None,
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
    ) -> Appended:
        """Append one record: any buffer, a str, or whatever msgpack holds.

        Without a ``partition`` a key decides (its CRC-32, modulo the open partitions), and without
        a key the handle's own, which changes now and then. The record keeps the ``timestamp``
        that is given, in seconds since 1970, whatever it is; None: now, and not before all
        others. :meth:`at` says by which time it is found. Where there is no room and
        nothing may go, it waits with ``block`` (None: if the stream's overflow is "block"), up
        to ``timeout`` seconds, and otherwise raises :class:`~shmq.Full`. ``confirm="disk"``
        waits until it is on disk. With the id of a ``producer`` and the record's ``sequence``
        there (0, 1, 2, …), a record that was appended before is not appended again.

        Raises :class:`~shmq.MessageTooLarge`, :class:`~shmq.NoSpace`,
        :class:`~shmq.NotConfirmed`, :class:`~shmq.OutOfSequence` where sequences are left out,
        :class:`~shmq.InvalidOption` and TypeError, and :class:`~shmq.PartitionSealed` for a
        ``partition`` that takes no records any more.
        """

    @abc.abstractmethod
    def append_many(
        self,
        values: Iterable[Any],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        timestamp: float | None = None,
        partition: int | None = None,
        codec: str | None = None,
        block: bool | None = None,
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        gaps: bool = False,
    ) -> list[AppendedRange]:
        """Append records, those of one partition in one piece: all of them are seen, or none.

        As :meth:`append`, with a key and headers for each, and the ``sequence`` of the first;
        a ``producer`` needs a ``partition``, and with ``gaps`` its sequences may jump forward.
        Fastest is a list of bytes for one partition. A piece of more than half the ring is
        split. Where an error comes after some pieces, these stay; they are in the error's
        ``appended``, a list of ranges.
        """

    @property
    @abc.abstractmethod
    def max_block_bytes(self) -> int:
        """The longest block that :meth:`append_block` takes, in bytes."""

    @abc.abstractmethod
    def append_block(
        self,
        block: bytes,
        *,
        partition: int,
        count: int | None = None,
        compression: Compression | None = None,
        raw_bytes: int | None = None,
        wait: bool | None = None,
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        gaps: bool = False,
    ) -> AppendedRange:
        """Append records that are encoded already, in one piece: see ``pack_records``.

        With a ``compression``, ``block`` is ``count`` of them compressed together, which were
        ``raw_bytes`` before; they stay so until somebody reads them. Raises
        :class:`~shmq.InvalidOption` for a block that is none, and what :meth:`append` raises.
        """

    def producer(
        self,
        *,
        partitioner: Partitioner | None = None,
        batch_bytes: int = 16 << 10,
        linger: float = 0.0,
        acks: Acks = "memory",
        idempotent: bool = True,
        codec: str | None = None,
        compression: Compression | None = None,
    ) -> Producer:
        """What gathers records into batches of ``batch_bytes`` and appends them.

        A record waits for others at most ``linger`` seconds; 0: for none. ``partitioner``, of
        the key and the number of partitions, says the partition; None: the key's CRC-32, and
        without a key one partition for each batch. With ``acks`` "none" what cannot be
        appended is dropped and counted; with "memory" it is not taken, or waits, as
        ``Producer.send`` says; with "disk" a batch is over once it is on disk. ``idempotent``:
        a batch that is appended again after an error is not there twice. Raises
        :class:`~shmq.InvalidOption`.
        """
        raise Unsupported(f"stream {self.name!r} has no producers here: connect on its host")

    # ---- reading ----

    @abc.abstractmethod
    def read(
        self,
        partition: int,
        offset: int,
        limit: int = 1000,
        *,
        max_bytes: int = 1 << 20,
        block: bool = False,
        timeout: float | None = None,
        view: bool = False,
        pin: bool = False,
        where: str | None = None,
        end: int | None = None,
    ) -> Records:
        """The records from ``offset`` on: at most ``limit``, and ``max_bytes`` but for the first.

        None of ``end`` or behind it, if that is given. Nothing there yet: none, or with
        ``block`` it waits up to ``timeout`` seconds (None: without end) for the first. With
        ``view`` the values are not copied, and with ``pin`` they are kept until
        ``Records.release``, or this process's end. ``where`` leaves out the records that an
        expression over their keys, headers, ages and so on does not mean; ``next_offset`` is
        behind them.

        Raises :class:`~shmq.OffsetOutOfRange` for an offset that is gone, or that is beyond
        the next one to come, and :class:`~shmq.DamagedFile` for one that a file has no longer as
        it was written: its ``next_offset`` is the next that can be read.
        """

    @abc.abstractmethod
    async def aread(
        self,
        partition: int,
        offset: int,
        limit: int = 1000,
        *,
        max_bytes: int = 1 << 20,
        timeout: float | None = None,
        where: str | None = None,
        end: int | None = None,
    ) -> Records:
        """As :meth:`read` with ``block``, without blocking the event loop."""

    @abc.abstractmethod
    def reader(
        self,
        start: Start = "earliest",
        partitions: Iterable[int] | None = None,
        *,
        limit: int = 1000,
        timeout: float | None = None,
        lapped: Literal["raise", "skip"] = "raise",
        where: str | None = None,
        on_damage: OnDamage = "raise",
    ) -> Reader:
        """An iterator over the records of all, or of these, partitions, that follows them.

        It reads up to ``limit`` ahead. ``timeout``: it ends where no record comes within so
        many seconds; None: never. Where records were gone before it came to them, it raises
        :class:`~shmq.OffsetOutOfRange`, or goes on with the oldest and counts them in ``lost``.
        Where a file is damaged it raises :class:`~shmq.DamagedFile`, and again when it is asked
        again, while the other partitions go on; with ``on_damage="skip"`` it goes on behind the
        records that cannot be read, and counts them in ``damaged``.
        """

    @abc.abstractmethod
    def areader(
        self,
        start: Start = "earliest",
        partitions: Iterable[int] | None = None,
        *,
        limit: int = 1000,
        timeout: float | None = None,
        lapped: Literal["raise", "skip"] = "raise",
        where: str | None = None,
        on_damage: OnDamage = "raise",
    ) -> AsyncReader:
        """As :meth:`reader`, asynchronous."""

    # ---- subscribing ----

    def subscribe(
        self,
        pattern: str = "#",
        history: int | None = 0,
        *,
        policy: Policy = "drop-oldest",
        timeout: float | None = None,
        limit: int = 1000,
        on_lost: Callable[[int], object] | None = None,
        on_damage: OnDamage = "raise",
    ) -> Subscription:
        """The records whose keys match the pattern, as they come: an iterator.

        A key is words separated by dots; in the pattern ``*`` is one word and ``#`` any number
        of them, none included. The ``history`` newest matching records come first, by their
        time (None: all that there are, in the order of each partition alone). It reads up to
        ``limit`` ahead; it ends where nothing matching comes within ``timeout`` seconds (None:
        never).

        A subscriber that is too slow loses with ``policy="drop-oldest"`` what is overwritten:
        ``on_lost`` is called with how many records these were before the next one comes, and
        ``lost`` counts them. With ``"block"`` it holds back those who append, which takes a
        stream with ``overflow="block"``; its death or `close` ends that, and over TCP the loss of
        its connection: with the next one it holds back again, and what was overwritten meanwhile
        is ``lost``. ``on_damage`` is as for `reader`; with ``"raise"`` a history that cannot be
        read is an error here. Raises :class:`~shmq.InvalidOption`, TypeError,
        :class:`~shmq.NoSpace` where as many hold the stream back as can, and
        :class:`~shmq.Unsupported` for ``"block"`` from an older server.
        """
        raise Unsupported(f"stream {self.name!r} has no subscriptions: connect on its host")

    # ---- looking ----

    @abc.abstractmethod
    def offsets(self) -> list[PartitionOffsets]:
        """What each partition holds, in their order."""

    @abc.abstractmethod
    def earliest(self, partition: int) -> int:
        """The offset of the oldest record of the partition that can be read."""

    @abc.abstractmethod
    def latest(self, partition: int) -> int:
        """The offset that the partition's next record will have."""

    @abc.abstractmethod
    def at(self, timestamp: float, partition: int) -> int:
        """The offset of the first record found from that time on, in seconds since 1970.

        A record is found by the largest timestamp up to it in its partition, of which each
        counts as far as it was not ahead of the clock of the stream's host when it was
        appended: by a time that never falls, and that no record from the future moves. By the
        same time records grow old for ``retention_seconds``. ``latest`` if there is none.
        """

    def rates(self, seconds: float = 10.0) -> list[PartitionRate]:
        """How many records each partition got within the last ``seconds``, in their order.

        Of a partition that no longer has all of them, the rate of those that it has. Raises
        :class:`~shmq.InvalidOption` for seconds that are not 0.001 to 1e9.
        """
        now, span = time.time(), check_seconds("seconds", seconds, least=0.001)
        begin = self.open_partitions.start
        rates = [self._rate(found, now, span) for found in self.offsets()]
        mean = sum(rates[begin:]) / len(rates[begin:])
        shares = [rate / mean if mean else 0.0 for rate in rates]
        return [
            PartitionRate(partition=p, rate=rate, share=share, hot=share > HOT and p >= begin)
            for p, (rate, share) in enumerate(zip(rates, shares, strict=True))
        ]

    def _rate(self, found: PartitionOffsets, now: float, span: float) -> float:
        if found.latest == found.earliest or found.earliest_timestamp is None:
            return 0.0
        count = found.latest - self.at(now - span, found.partition)
        if found.earliest > 0:  # older ones may be gone
            span = min(span, max(now - found.earliest_timestamp, 1e-3))
        return count / span

    def hot(self, seconds: float = 10.0) -> list[PartitionRate]:
        """The partitions that get more than 3 times the mean, the hottest first."""
        found = [rate for rate in self.rates(seconds) if rate.hot]
        return sorted(found, key=lambda rate: -rate.rate)

    # ---- groups ----

    def group(
        self,
        name: str,
        assignment: Assignment | None = None,
        *,
        session_timeout: float | None = None,
        start: GroupStart = "earliest",
    ) -> Group:
        """The group of that name, made if there is none: each partition is one member's.

        The options are those of a group that is made: ``assignment`` None: ``"range"``;
        ``session_timeout`` None: 30 seconds. One that is there keeps its own; it raises
        :class:`~shmq.InvalidOption` if it is of another ``assignment`` than is asked for.
        Raises :class:`~shmq.InvalidName` and :class:`~shmq.NoSpace`.
        """
        raise _no_groups("group")

    def share(
        self,
        name: str,
        *,
        lease: float = 30.0,
        max_deliveries: int | None = 5,
        dead_letter: str | None = None,
        held: int = 4096,
        start: GroupStart = "earliest",
        member: str | None = None,
        on_damage: OnDamage = "raise",
    ) -> Share:
        """Join the group of that name, made if there is none: each record is lent to one.

        The options are those of a group that is made: a record is lent for ``lease`` seconds;
        after ``max_deliveries`` (None: no limit) it goes to the queue ``dead_letter``, which
        has to be there, or (None, or it was deleted) is dropped and counted; ``held`` records
        may be unsettled at a time. ``member`` is what the member is called. ``on_damage`` is of
        this member, as for `reader`. Raises what `group` raises, and :class:`~shmq.NoSuchQueue`.
        """
        raise _no_groups("share")

    def groups(self) -> list[GroupSummary]:
        """Every group of the stream, sorted by name; one that cannot be used has a problem."""
        raise _no_groups("groups")

    def delete_group(self, name: str) -> None:
        """Delete a group and its offsets. Its members get :class:`~shmq.StreamDeleted`.

        Raises :class:`~shmq.NoSuchGroup`.
        """
        raise _no_groups("delete_group")

    @abc.abstractmethod
    def close(self) -> None:
        """Detach. Records that were read stay usable, but for views. May be called again."""


def _no_groups(what: str) -> Unsupported:
    return Unsupported(f"this stream has no {what}(): connect on its host")
