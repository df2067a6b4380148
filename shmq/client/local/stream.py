"""The streams of this host, attached to directly, without a server."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from shmq import api
from shmq.api.contract import document
from shmq.api.names import SHM, check_name
from shmq.api.options import Confirm
from shmq.api.stream_options import StreamOptions
from shmq.client.local import deaths
from shmq.client.local.archived_records import ArchivedRecords
from shmq.client.local.group import GroupMethods
from shmq.client.local.group_store import keep_new
from shmq.client.local.queue import attach as attach_queue
from shmq.client.local.queues import check_alone
from shmq.client.local.retention_hold import RetentionHold, drop_dead
from shmq.client.ports.broker import CollectionPort
from shmq.client.ports.steps import Steps
from shmq.client.ports.stream import Found
from shmq.client.shared import durability
from shmq.client.shared.pickling import reduce
from shmq.client.transaction.recover import look
from shmq.errors import (
    DamagedFile,
    FileError,
    InvalidOption,
    LockTimeout,
    NoSuchStream,
    OffsetOutOfRange,
    SegmentError,
    ShmqError,
    StreamDeleted,
    StreamExists,
    closed_handle,
)
from shmq.host.namespace import group_files as files
from shmq.host.namespace import repartition, streams
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import late_imports
from shmq.model.expression.record_fields import RecordWhere
from shmq.model.routing.book import Book
from shmq.native import _clock as time
from shmq.native import _core, _stream

log = logging.getLogger("shmq")


class LocalStream(_stream.StreamHandle, GroupMethods):
    """A stream in this host's shared memory. Threads may share a handle.

    A pickled handle attaches where it is unpickled; after a fork the child can use its copy.
    """

    def __init__(self, namespace: Namespace, name: str, opened: streams.Opened) -> None:
        self._namespace = namespace
        self._files = _open_files(namespace, opened[0])
        namespace.processes.own_number(opened[0])  # so others see that this process lives
        super().__init__(name, *opened)

    @property
    def namespace(self) -> Namespace:
        """The namespace it is in."""
        return self._namespace

    @property
    def options(self) -> StreamOptions:
        return StreamOptions(**self.control.options)

    @property
    def is_gone(self) -> bool:
        """Whether the stream was deleted."""
        return self.control.deleted

    @property
    def identity(self) -> int:
        return int(self.control.identity)

    @property
    def partitions(self) -> int:
        self._look_for_partitions()
        return len(self.logs)

    @property
    def open_partitions(self) -> range:
        return range(*self.control.shape)

    # ---- partitions that come ----

    def change_partitions(self, partitions: int) -> range:
        self._check_handle()
        repartition.repartition(self._namespace, self.control, partitions, self._prepare)
        self._look_for_partitions()
        return self.open_partitions

    def _prepare(self, made: list[_stream.Partition]) -> None:
        """Make the groups keep their records in the new partitions, too."""
        if self.options.overflow == "block":
            keep_new(self._namespace, self.identity, [*self.logs, *made], len(made))

    def _look_for_partitions(self) -> None:
        begin, count = self.control.shape
        have = len(self.logs)
        if count > have:
            # Two threads may do this at the same time: they add the same partitions.
            self.logs[have:count] = [self._get_new_partition(p) for p in range(have, count)]
        self._set_shape(begin, count)

    def _get_new_partition(self, partition: int) -> _stream.Partition:
        try:
            return streams.open_partition(self._namespace, self.control, partition)
        except (FileNotFoundError, SegmentError):
            if not self.control.deleted:
                raise
            raise StreamDeleted(f"stream {self.name!r} was deleted") from None

    def _await_partitions(self, _sealed: _stream.Partition) -> None:
        """Finish a repartition that another process is running, or died in."""
        repartition.finish(self._namespace, self.control)
        self._look_for_partitions()

    # ---- appending ----

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
    ) -> api.RecordLoan:
        how = (key, headers, timestamp, partition, block, timeout, confirm)
        loan = _stream.make_loan(self, size, *how)
        if loan is not None:
            return loan
        return super().loan(
            size,
            key=key,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
            block=block,
            timeout=timeout,
            confirm=confirm,
        )

    # ---- reading ----

    def fetch(
        self,
        places: Mapping[int, int],
        limit: int,
        max_bytes: int,
        wait: float | None,
        where: str | None = None,
        hold: tuple[int, Mapping[int, int]] | None = None,
    ) -> Steps[Found]:
        del hold  # its floors move by themselves
        found = self.fetch_now(places, limit, max_bytes, where)
        if not found and wait != 0:
            yield (lambda: self.wait_for_any(places, wait), lambda: self.abeyond_any(places, wait))
            found = self.fetch_now(places, limit, max_bytes, where)
        return found

    def fetch_now(
        self, places: Mapping[int, int], limit: int, max_bytes: int, where: str | None
    ) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for partition, offset in places.items():
            try:
                records = self.read(partition, offset, limit, max_bytes=max_bytes, where=where)
            except (DamagedFile, OffsetOutOfRange) as error:
                found[partition] = error
                continue
            if records.next_offset > offset:
                found[partition] = records
        return found

    async def abeyond_any(self, position: Mapping[int, int], timeout: float | None = None) -> bool:
        """As `wait_for_any`, without blocking the event loop."""
        found = any(self._get_partition(p).reaches(offset) for p, offset in position.items())
        if not found and timeout != 0:
            with late_imports:
                from shmq.client.local.waiting import stream_waits  # noqa: PLC0415 - it imports asyncio

            found = await stream_waits.wait_for_any(self, position, timeout)
        for partition in position:
            self._get_partition(partition).bounds()  # raises if it was deleted
        return found

    def new_floors(self) -> RetentionHold:
        return RetentionHold(self)

    def wait_for_any(self, position: Mapping[int, int], timeout: float | None = None) -> bool:
        """Whether one of these partitions has a record at or after the offset, in time.

        It also returns as soon as the stream gets more partitions.
        """
        until = None if timeout is None else time.monotonic() + timeout
        shape = self.control.shape
        logs = [(self._get_partition(partition), offset) for partition, offset in position.items()]
        if timeout != 0 and len(logs) == 1 and logs[0][0].spin(logs[0][1]):
            return True
        while True:
            wakeup, at_most = 0, self.longest_sleep
            for log, _ in logs:
                wakeup = log.arm()
            if any(log.bounds()[1] > offset for log, offset in logs):
                return True
            if self.control.shape != shape:
                return True
            left = at_most if until is None else min(at_most, until - time.monotonic())
            if left <= 0 or self.closed:
                return False
            if not logs[0][0].sleep(wakeup, left):
                look(self._namespace)
                self.see_to_guard(left)

    def read_raw(
        self,
        partition: int,
        offset: int,
        limit: int = 1000,
        *,
        max_bytes: int = 1 << 20,
        end: int | None = None,
    ) -> tuple[bytes, int]:
        """The encoded entries from ``offset`` on, each whole, and the offset after them."""
        try:
            return super().read_raw(partition, offset, limit, max_bytes=max_bytes, end=end)
        except OffsetOutOfRange:
            log = self._get_partition(partition)
            if self._files is None:
                raise
            found = self._files.raw(log, offset, limit, max_bytes, end)
            if found is None:
                raise
            return found

    def whole(self, partition: int, offset: int, limit: int) -> int:
        """How many records from ``offset`` on can be read at once, of at most ``limit``.

        Raises DamagedFile if there are none.
        """
        log = self._get_partition(partition)
        if self._files is None or offset >= log.bounds()[0]:
            return limit
        return self._files.whole(log, offset, limit)

    def _below(
        self, log: _stream.Partition, offset: int, limit: int, most_bytes: int, end: int | None
    ) -> api.Records | None:
        """The records that are no longer in the ring, from the files; None: the files lack them."""
        if self._files is None:
            return None
        return self._files.records(log, offset, limit, most_bytes, end)

    def _test(self, where: str) -> Callable[[_stream.Records], _stream.Records]:
        """A filter that leaves out the records that do not match."""
        meant = RecordWhere(where)
        return lambda records: records.select([meant.matches(record) for record in records])

    # ---- looking ----

    def describe(self) -> Steps[list[api.PartitionOffsets]]:
        yield from ()
        return [self._read_offsets(partition) for partition in range(self.partitions)]

    def _read_offsets(self, partition: int) -> api.PartitionOffsets:
        log = self._get_partition(partition)
        sealed = log.sealed  # read before the bounds: if sealed, they are final
        earliest, latest, first, last, size = log.bounds()
        if self._files is not None and (below := self._files.before(log, earliest)) is not None:
            earliest, size = below, self._files.size(log)
            first, late = self._files.times(log)
            last = last or late
        return api.PartitionOffsets(
            partition=partition,
            earliest=earliest,
            latest=latest,
            earliest_timestamp=first / 10**9 if latest > earliest else None,
            latest_timestamp=last / 10**9 if latest > earliest else None,
            bytes=size,
            sealed=sealed,
            behind=log.behind,
            created_at=log.created_at / 1e9,
        )

    def find_produced(self, producer: int) -> list[int | None]:
        return [self._get_partition(each).produced(producer) for each in range(self.partitions)]

    def earliest(self, partition: int) -> int:
        log = self._get_partition(partition)
        earliest: int = log.bounds()[0]
        below = None if self._files is None else self._files.before(log, earliest)
        return earliest if below is None else below

    def latest(self, partition: int) -> int:
        return self._get_partition(partition).bounds()[1]

    def find(self, partition: int, timestamp_ns: int) -> int:
        log = self._get_partition(partition)
        found: int = log.at(timestamp_ns)
        if self._files is not None and found == log.bounds()[0]:  # perhaps in a file
            below = self._files.at(log, timestamp_ns)
            found = found if below is None else min(below, found)
        return found

    def check_partition(self, partition: int) -> int:
        self._get_partition(partition)
        return int(partition)

    def _check_handle(self) -> None:
        if self.closed:
            raise closed_handle("stream", self.name)

    def _get_partition(self, partition: int) -> _stream.Partition:
        self._check_handle()
        partition = _core.plain_number(partition)
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(
                f"partition={partition!r} must be an int, not {type(partition).__name__}"
            )
        if not 0 <= partition < len(self.logs) and not 0 <= partition < self.partitions:
            raise InvalidOption(
                f"partition={partition} is out of range: 0 to {self.partitions - 1} in stream "
                f"{self.name!r}"
            )
        return self.logs[partition]

    # ---- what the core leaves to policy ----

    def _process_number(self) -> int:
        return self._namespace.processes.own_number(self.control)

    def await_writer(self) -> None:
        """Start a persistence writer, without waiting, if the stream is there and has none.

        Raises StreamDeleted if its memory was removed by hand: no writer can write it any more.
        """
        if self.is_gone:
            return
        if streams.is_removed(self._namespace, self.control):
            raise StreamDeleted(
                f"the memory of stream {self.name!r} was removed from {SHM}: whether what was "
                f"appended there last is on disk is not known; open the stream again"
            )
        durability.see_to_it(self._namespace)

    def _why_unwritten(self, partition: int) -> str | None:
        log = self.logs[partition]
        if log.disk_error:
            return f"as they are not on disk, which fails: {os.strerror(log.disk_error)}"
        if self._namespace.roles.writer_pid is None:
            missing = durability.missing(self._namespace)
            return f"as {log.bounds()[1] - log.synced} records are not on disk; {missing}"
        return None

    def why_unconfirmed(self, partition: int) -> str:
        """The reason why records of the partition are not known to be on disk, as text."""
        log = self.logs[partition]
        if error := log.disk_error or log.last_error:  # the disk may work again by now
            return f"the disk fails: {os.strerror(error)}"
        if self._namespace.roles.writer_pid is None:
            return f"{durability.missing(self._namespace)}; it is written then"
        return f"all before offset {log.synced} is; wait longer"

    def _look_for_dead(self, partition: int) -> None:
        """Drop the holds of dead processes on the partition; ensure that a writer writes it."""
        if self._files is not None:
            self.await_writer()
        drop_dead(self._namespace, self.logs[partition])

    def settle_dead(self) -> None:
        """Settle the commits of dead processes, which may have records for the stream."""
        look(self._namespace)

    def is_guarded(self) -> bool:
        """Whether a process of the namespace watches for deaths, so that a sleep may be long."""
        return deaths.are_noticed(self._namespace, attach_queue)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, _attach_by_name, self._namespace.name, self.name)

    def __dir__(self) -> list[str]:
        """The names of the contract; the other attributes are for the core and the client."""
        return [name for name in dir(api.Stream) if not name.startswith("_abc_")]

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<LocalStream {self.name!r} of namespace {self._namespace.name!r}{state}>"


document(LocalStream, api.Stream)
api.RecordLoan.register(_stream.RecordLoan)


def _open_files(namespace: Namespace, control: _stream.Control) -> ArchivedRecords | None:
    """The files of a durable stream; None if it has none."""
    if control.options["durability"] == "memory":
        return None
    return ArchivedRecords(namespace, control.name, control.identity)


def _measure_extent(log: _stream.Partition, files: ArchivedRecords | None) -> tuple[int, int, int]:
    """The offsets of the first readable record and of the next one, and the size in bytes."""
    earliest, latest, _, _, size = log.bounds()
    if files is not None and (below := files.before(log, earliest)) is not None:
        return below, latest, files.size(log)
    return earliest, latest, size


def attach(namespace: Namespace, name: str) -> LocalStream:
    """Attach to an existing stream. Raises NoSuchStream, SegmentError."""
    check_name(name, "stream")
    return LocalStream(namespace, name, _open_segments(namespace, name))


def _open_segments(namespace: Namespace, name: str) -> streams.Opened:
    """The stream's segments; completes what a dead process began with them."""
    opened = streams.open_stream(namespace, name)
    while opened[0].next_shape is not None:
        with contextlib.suppress(StreamDeleted):
            repartition.finish(namespace, opened[0])
        opened = streams.open_stream(namespace, name)
    return opened


def _attach_by_name(namespace: str, name: str) -> LocalStream:
    return attach(Namespace.of(namespace), name)


class StreamCollection(CollectionPort):
    """The streams of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def make(
        self, name: str, wanted: StreamOptions, given: Mapping[str, Any], exact: bool
    ) -> LocalStream:
        alone = "allow_same_name" not in given
        wanted.check_of_host(name)
        others: tuple[Literal["queue"], ...] = ("queue",) if alone else ()
        durability.bring_back(self._namespace, name, "stream", *others)
        with self._namespace.locked():
            opened = self._find_stream(name)
            if opened is None:
                if alone:
                    check_alone(self._namespace, "stream", name)
                made = self._make(name, wanted)
            else:
                control, logs = opened
                differences = wanted.differences(StreamOptions(**control.options)) if exact else {}
                if sum(not log.behind for log in logs) == wanted.partitions:  # when it was created
                    differences.pop("partitions", None)
                if differences:
                    raise StreamExists.of(name, differences)
                made = LocalStream(self._namespace, name, opened)
        return self._await_writer(made)

    def _await_writer(self, stream: LocalStream) -> LocalStream:
        """The stream, once a writer keeps it if it is durable; warns if no writer exists.

        Without the registry lock, which the writer needs to start.
        """
        if stream.control.options["durability"] != "memory":
            durability.warn_unkept(self._namespace, "stream", stream.name)
        return stream

    def _make(self, name: str, options: StreamOptions) -> LocalStream:
        """Create the stream; the registry lock is held."""
        self._namespace.processes.own_number()
        opened = streams.make_stream(self._namespace, name, options)
        return LocalStream(self._namespace, name, opened)

    def open(self, name: str, to_put: bool = False) -> LocalStream:
        del to_put
        durability.bring_back(self._namespace, name, "stream")
        return self._await_writer(attach(self._namespace, name))

    def alter(self, name: str, given: Mapping[str, Any]) -> StreamOptions:
        with self.open(name) as stream:
            control = stream.control
            with self._namespace.locked():
                if control.deleted:
                    raise NoSuchStream.of(name, f"in namespace {self._namespace.name!r}")
                options = stream.options
                wanted = options.altered(name, given, control.most_ring_bytes)
                if wanted.differences(options):
                    control.alter(wanted.as_dict())
            for log in stream.logs:
                drop_dead(self._namespace, log)  # of which a loan may be in the way of a ring
                with contextlib.suppress(LockTimeout):  # the next append does it
                    log.apply()
            altered = stream.options
            # Without a change as well: an earlier caller may have ended before it was saved.
            if altered.durability != "memory":
                durability.save_stream_options(self._namespace, control)
        return altered

    def delete(self, name: str) -> None:
        # With it go the groups whose stream is gone.
        with contextlib.suppress(FileError):  # then its files are deleted as they are
            durability.bring_back(self._namespace, name, "stream")
        with self._namespace.locked():
            try:
                Book.of(self._namespace).forget("stream", name)
            except SegmentError as error:
                log.warning("stream %s is removed, its bindings are not: %s", name, error)
            if not durability.give_up(self._namespace, "stream", name):
                streams.remove_stream(self._namespace, name)
            self._remove_groups()

    def _remove_groups(self) -> None:
        """Remove groups whose stream is gone; needs the registry lock."""
        if not self._namespace.names_of("group.shmq"):
            return
        identities = set()
        for name in self._namespace.stream_names():
            try:
                control = streams.look_at(self._namespace, name)
            except NoSuchStream:
                continue
            except SegmentError:
                return  # the owners of the groups are unknown
            if control is not None:
                identities.add(int(control.identity))
        files.sweep(self._namespace, identities)

    def summaries(self) -> list[api.StreamSummary]:
        durability.bring_back_all(self._namespace)
        found = (self._summarize(name) for name in self._namespace.stream_names())
        return [summary for summary in found if summary is not None]

    def names(self) -> list[str]:
        return self._namespace.stream_names()

    def _summarize(self, name: str) -> api.StreamSummary | None:
        try:
            control, logs = streams.open_stream(self._namespace, name)
            files = _open_files(self._namespace, control)
            extents = [_measure_extent(log, files) for log in logs]
        except (NoSuchStream, StreamDeleted):
            return None
        except ShmqError as error:
            return api.StreamSummary(
                name=name, partitions=0, records=0, bytes=0, problem=str(error)
            )
        return api.StreamSummary(
            name=name,
            partitions=len(logs),
            records=sum(latest - earliest for earliest, latest, _ in extents),
            bytes=sum(size for _, _, size in extents),
            durability=control.options["durability"],
        )

    def _find_stream(self, name: str) -> streams.Opened | None:
        try:
            return _open_segments(self._namespace, name)
        except NoSuchStream:
            return None
