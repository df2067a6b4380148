"""The contract of a stream: partitions of records that many readers read without removing them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from shmq.api.contract import AsyncClosing, Closing
from shmq.api.options import Confirm
from shmq.errors import Unsupported
from shmq.native import _clock as time
from shmq.native._core import check_seconds

if TYPE_CHECKING:
    from shmq.api.group import Assignment, Group, GroupStart, GroupSummary
    from shmq.api.producer import Acks, Partitioner, Producer
    from shmq.api.record import Appended, AppendedRange, OnDamage, Record, RecordLoan, Records
    from shmq.api.share import Share
    from shmq.api.stream_options import StreamOptions
    from shmq.api.subscription import AsyncSubscription, Policy, Subscription

#: Where a reader begins: at the oldest record, behind the newest, at an offset of each partition,
#: or at the first record from a time on, in seconds since 1970.
Start = Literal["earliest", "latest"] | Mapping[int, int] | float

#: A partition is hot if it gets more than this many times the mean.
HOT: Final = 3.0

#: How the records of a batch are compressed; None: not at all.
Compression = Literal["lz4", "zstd"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """One entry of the list of streams."""

    #: The stream's name.
    name: str
    #: How many partitions it has.
    partitions: int
    #: Records that can be read, in all partitions.
    records: int
    #: The bytes they take.
    bytes: int
    #: ``"memory"`` or ``"journal"``.
    durability: str = "memory"
    #: Why the stream cannot be used (its numbers are then 0); None if it can be used.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The state of one partition."""

    #: The partition.
    partition: int
    #: The offset of the oldest record that can be read.
    earliest: int
    #: The offset that the next record will have; equal to ``earliest`` if the partition is empty.
    latest: int
    #: The time by which ``Stream.at`` finds the oldest record, in seconds since 1970; None if the
    #: partition is empty.
    earliest_timestamp: float | None
    #: The same for the newest record; None if the partition is empty.
    latest_timestamp: float | None
    #: Bytes that the records take, their frames included.
    bytes: int
    #: Whether it takes no more records because the stream was repartitioned.
    sealed: bool = False
    #: Before this partition was made, its keys went to partitions below this number; they are read
    #: first.
    behind: int = 0
    #: When the partition was made, in seconds since 1970.
    created_at: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRate:
    """The rate at which a partition gets records."""

    #: The partition.
    partition: int
    #: Records per second.
    rate: float
    #: The rate as a multiple of the mean of all open partitions; 0 if none gets any.
    share: float
    #: Whether ``share`` is more than 3 and the partition is not sealed.
    hot: bool


class _Progress(abc.ABC):
    """How far a reader has come."""

    @property
    @abc.abstractmethod
    def position(self) -> dict[int, int]:
        """The offset of the next record, for each partition that it reads."""

    @property
    @abc.abstractmethod
    def lost(self) -> int:
        """How many records were gone before it reached them, with ``lapped="skip"``."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records in damaged files were skipped, with ``on_damage="skip"``."""


class Reader(_Progress, Closing):
    """An iterator over a stream's records that follows the stream.

    Within a partition the records come in order of their offsets; partitions take turns. A reader
    of all partitions also reads the ones added later: see `Stream.repartition`. It keeps its own
    position and does not affect other readers. One thread at a time may use it.
    """

    @abc.abstractmethod
    def seek(self, position: Mapping[int, int]) -> None:
        """Continue at other offsets of these partitions. Raises :class:`~shmq.InvalidOption`."""

    @abc.abstractmethod
    def poll(self, timeout: float | None = 0.0) -> list[Records]:
        """Up to ``limit`` records of each partition, waiting only for the first.

        A ``timeout`` of None waits without limit. The list is empty if no record came. The position
        moves past the returned records. If a file is damaged, the call raises
        :class:`~shmq.DamagedFile` with the partition and the offsets, once the other partitions'
        records were returned, and again at each later call until a `seek` moves past the damage.
        """

    @abc.abstractmethod
    def __next__(self) -> Record: ...

    def __iter__(self) -> Iterator[Record]:
        return self

    @abc.abstractmethod
    def close(self) -> None:
        """End the iteration. May be called again."""


class AsyncReader(_Progress, AsyncClosing):
    """An asynchronous :class:`Reader`. One task at a time may use it."""

    @abc.abstractmethod
    async def __anext__(self) -> Record: ...

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End the iteration. May be called again."""


class Stream(Closing):
    """A stream of records in partitions. Threads may share a handle.

    Every method raises :class:`~shmq.StreamDeleted` once the stream was deleted, and
    :class:`~shmq.ShmqError` once the handle is closed. A partition number that does not exist
    raises :class:`~shmq.InvalidOption`.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The stream's name."""

    @property
    @abc.abstractmethod
    def options(self) -> StreamOptions:
        """The options that the stream was created with."""

    @property
    @abc.abstractmethod
    def identity(self) -> int:
        """The stream's identity; a stream recreated by the same name has another."""

    @property
    @abc.abstractmethod
    def partitions(self) -> int:
        """The number of partitions; they are numbered 0 to ``partitions - 1``.

        Over TCP, as of the server's last answer.
        """

    @property
    def open_partitions(self) -> range:
        """The partitions that take records: all, until the stream is repartitioned."""
        return range(self.partitions)

    def repartition(self, partitions: int) -> range:
        """Append to this many new partitions from now on; returns their numbers.

        There must be more of them than there are open partitions. The open ones are sealed: they
        keep their records and their numbers, but take no more records. Readers and producers need
        not stop. The records of a key stay in order: readers of all partitions and members of
        groups read a new partition only once they have reached the end of all partitions that were
        sealed for it; for a group, its committed offsets count. A reader of selected partitions
        must take care of that order itself.

        With ``durability="journal"`` the disk keeps the same order: no record of a new partition is
        confirmed before all records of the sealed ones are on disk.

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
        """Append one record: any buffer, a str, or any value that msgpack encodes.

        Without a ``partition`` the key decides (its CRC-32, modulo the open partitions); without a
        key the record goes to the handle's current partition, which changes now and then. The
        record keeps the ``timestamp`` given, in seconds since 1970, whatever its value; None takes
        the current time, and at least that of all earlier records. :meth:`at` says by which time
        the record is found. If there is not enough room and no record may be dropped, the call
        waits with ``block`` (None: if the stream's overflow is "block"), up to ``timeout`` seconds;
        otherwise it raises :class:`~shmq.Full`. ``confirm="disk"`` waits until the record is on
        disk. With the id of a ``producer`` and the record's ``sequence`` in that partition (0, 1,
        2, …), a record that was already appended is not appended again.

        Raises :class:`~shmq.MessageTooLarge`, :class:`~shmq.NoSpace`, :class:`~shmq.NotConfirmed`,
        :class:`~shmq.OutOfSequence` if sequences are missing, :class:`~shmq.InvalidOption` and
        TypeError, and :class:`~shmq.PartitionSealed` for a ``partition`` that takes no more
        records.
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
        """Append records; those of one partition become visible together.

        As :meth:`append`, with a key and headers for each record, and the ``sequence`` of the
        first; a ``producer`` needs a ``partition``, and with ``gaps`` its sequences may jump
        forward. A list of bytes for one partition is the fastest. The records of a partition that
        take more than half of its ring are split into several appends. If an error follows some of
        the appends, these stay; the error's ``appended`` lists their ranges.
        """

    @abc.abstractmethod
    def loan(
        self,
        size: int,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        timestamp: float | None = None,
        partition: int | None = None,
        block: bool | None = None,
        timeout: float | None = None,
        confirm: Confirm | None = None,
    ) -> RecordLoan:
        """Borrow a place for a record of ``size`` bytes: ``with stream.loan(n) as view``.

        The record gets its offset when the loan is committed. Until then other appends go on
        around the place, however long the loan is open, and readers see nothing of it. On this
        host the place is in the ring, for one open loan of each partition. The value is copied once
        at the commit if other records were appended in the meantime, if the partition has lent a
        place already, if the stream has ``retention_bytes``, and over TCP. The options and the
        errors are those of :meth:`append`; only the commit waits for the disk.
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
        """Append records that are already encoded, all together: see ``pack_records``.

        With a ``compression``, ``block`` is ``count`` records compressed together, ``raw_bytes``
        long before; they stay compressed until they are read. Raises :class:`~shmq.InvalidOption`
        for an invalid block, and what :meth:`append` raises.
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
        """Create a producer, which appends records in batches of ``batch_bytes``.

        A record waits for others at most ``linger`` seconds; 0: not at all. ``partitioner`` maps
        the key and the number of partitions to a partition; None: the key's CRC-32, and for records
        without a key one partition for each batch. With ``acks`` "none", records that cannot be
        appended are dropped and counted; with "memory", such a record is refused or waits, as
        ``Producer.send`` says; with "disk", a batch is done once it is on disk. With
        ``idempotent``, a batch that is appended again after an error is not stored twice. Raises
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
        """The records from ``offset`` on: at most ``limit`` records and ``max_bytes``.

        The first record is returned even if it is larger. Records at ``end`` or later are left out.
        If no record exists yet, the result is empty, or with ``block`` the call waits up to
        ``timeout`` seconds (None: no limit) for the first. With ``view`` the values are not copied,
        and with ``pin`` they are kept until ``Records.release`` or the end of this process.
        ``where`` leaves out the records that do not match an expression over their keys, headers,
        ages and so on; ``next_offset`` is past them.

        Raises :class:`~shmq.OffsetOutOfRange` for an offset that is gone or beyond the next one to
        come, and :class:`~shmq.DamagedFile` if the record's file is damaged: the error's
        ``next_offset`` is the next that can be read.
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
        """:meth:`read` with ``block``, without blocking the event loop."""

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
        """An iterator over the records of all partitions, or of these, that follows the stream.

        It reads up to ``limit`` ahead, and ends if no record came for ``timeout`` seconds; None:
        never. If records were gone before it reached them, it raises
        :class:`~shmq.OffsetOutOfRange`, again at each later attempt until `seek`, while the other
        partitions continue, or with ``lapped="skip"`` continues with the oldest and counts them in
        ``lost``. If a file is damaged, it raises :class:`~shmq.DamagedFile`, again
        at each later attempt, while the other partitions continue; with ``on_damage="skip"`` it
        continues after the records that cannot be read, and counts them in ``damaged``.
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
        """An asynchronous :meth:`reader`."""

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
        """An iterator over the records whose keys match the pattern, as they come.

        A key is words separated by dots; in the pattern ``*`` is one word and ``#`` any number of
        words, including none. The ``history`` newest matching records come first, by their time
        (None: all records that exist, in the order of each partition only). It reads up to
        ``limit`` ahead; it ends if no matching record came for ``timeout`` seconds (None: never).

        With ``policy="drop-oldest"`` a subscriber that is too slow loses the records that are
        overwritten: before the next record, ``on_lost`` is called with their number, and ``lost``
        counts them. With ``"block"`` it holds back appends, which needs a stream with
        ``overflow="block"``, until it is closed or dies. Over TCP the loss of its connection ends
        that too: once reconnected it holds back appends again, and ``lost`` counts what was
        overwritten in the meantime. ``on_damage`` is as for `reader`; with ``"raise"`` a history
        that cannot be read is an error of this call. Raises :class:`~shmq.InvalidOption`,
        TypeError, :class:`~shmq.NoSpace` if the stream already has the maximum of blocking
        subscribers, and :class:`~shmq.Unsupported` for ``"block"`` if the server cannot do it.
        """
        raise Unsupported(f"stream {self.name!r} has no subscriptions: connect on its host")

    def asubscribe(
        self,
        pattern: str = "#",
        history: int | None = 0,
        *,
        policy: Policy = "drop-oldest",
        timeout: float | None = None,
        limit: int = 1000,
        on_lost: Callable[[int], object] | None = None,
        on_damage: OnDamage = "raise",
    ) -> AsyncSubscription:
        """:meth:`subscribe` for asyncio: ``async for record in stream.asubscribe("orders.#")``.

        It starts with its ``async with`` block, or without one when the first record is awaited,
        and raises then what `subscribe` raises, besides the errors of its arguments. What is
        appended before that is history.
        """
        raise Unsupported(f"stream {self.name!r} has no subscriptions: connect on its host")

    # ---- looking ----

    @abc.abstractmethod
    def offsets(self) -> list[PartitionOffsets]:
        """The state of each partition, in order."""

    @abc.abstractmethod
    def earliest(self, partition: int) -> int:
        """The offset of the oldest record of the partition that can be read."""

    @abc.abstractmethod
    def latest(self, partition: int) -> int:
        """The offset that the partition's next record will have."""

    @abc.abstractmethod
    def at(self, timestamp: float, partition: int) -> int:
        """The offset of the first record found from that time on, in seconds since 1970.

        A record's time here is the largest timestamp in its partition up to that record, where a
        timestamp ahead of the host's clock at its append counts as that clock's time. So the time
        never decreases, and a record dated in the future does not distort it. ``retention_seconds``
        uses the same time. In a NATS cluster it is the time at which a server stored the record.
        Returns ``latest`` if no such record exists.
        """

    @abc.abstractmethod
    def produced(self, producer: int) -> list[int | None]:
        """The last sequence that a producer has appended to each partition, in order.

        None: the partition does not know the producer. It knows the latest ones, some thousands.
        Raises :class:`~shmq.InvalidOption` for a producer below 0 or from 2⁶³ on, and
        :class:`~shmq.Unsupported` in a NATS cluster.
        """

    def rates(self, seconds: float = 10.0) -> list[PartitionRate]:
        """The rate of each partition over the last ``seconds``, in order.

        If a partition no longer has all records of that time, its rate is that of the remaining
        ones. Raises :class:`~shmq.InvalidOption` for seconds that are not 0.001 to 1e9.
        """
        now, span = time.time(), check_seconds("seconds", seconds, least=0.001)
        begin = self.open_partitions.start
        rates = [self._compute_rate(found, now, span) for found in self.offsets()]
        mean = sum(rates[begin:]) / len(rates[begin:])
        shares = [rate / mean if mean else 0.0 for rate in rates]
        return [
            PartitionRate(partition=p, rate=rate, share=share, hot=share > HOT and p >= begin)
            for p, (rate, share) in enumerate(zip(rates, shares, strict=True))
        ]

    def _compute_rate(self, found: PartitionOffsets, now: float, span: float) -> float:
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
        create: bool = True,
    ) -> Group:
        """The consumer group ``name``, created if missing: each partition belongs to one member.

        The options apply if the group is created: ``assignment`` None is ``"range"``;
        ``session_timeout`` None is 30 seconds. An existing group keeps its own; the call raises
        :class:`~shmq.InvalidOption` if another ``assignment`` is asked for than it has. Without
        ``create`` a missing group raises :class:`~shmq.NoSuchGroup`: an observer does not recreate
        what another process has deleted. Raises :class:`~shmq.InvalidName` and
        :class:`~shmq.NoSpace`.
        """
        raise _make_no_groups("group")

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
        """Join the share group ``name``, created if missing: each record is leased to one member.

        The options apply if the group is created: a record is leased for ``lease`` seconds; after
        ``max_deliveries`` (None: no limit) it goes to the queue ``dead_letter``, which must exist;
        if it is None or was deleted, the record is dropped and counted. At most ``held`` records
        may be unsettled at a time. ``member`` is the member's name. ``on_damage`` applies to this
        member, as for `reader`. Raises what `group` raises, and :class:`~shmq.NoSuchQueue`.
        """
        raise _make_no_groups("share")

    def groups(self) -> list[GroupSummary]:
        """Every group of the stream, sorted by name; one that cannot be used has a ``problem``."""
        raise _make_no_groups("groups")

    def delete_group(self, name: str) -> None:
        """Delete a group and its offsets. Its members get :class:`~shmq.StreamDeleted`.

        Raises :class:`~shmq.NoSuchGroup`.
        """
        raise _make_no_groups("delete_group")

    @abc.abstractmethod
    def close(self) -> None:
        """Detach. Records already read stay usable, except views. May be called again."""


def _make_no_groups(what: str) -> Unsupported:
    return Unsupported(f"this stream has no {what}(): connect on its host")
