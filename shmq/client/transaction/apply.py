"""Applies a committed transaction, in its own process or in one that finds that process dead.

Each step may be repeated: a receipt settles once, a copy is published once, an offset stays the
same, and a partition knows the last records of each producer. Inputs come before outputs, because
they need no room and may free some.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from shmq.client.transaction.transaction_log import TRANSACTION
from shmq.errors import (
    Full,
    NoSpace,
    NoSuchQueue,
    NoSuchStream,
    PartitionSealed,
    QueueDeleted,
    SegmentError,
    StreamDeleted,
)
from shmq.host.namespace import group_files
from shmq.host.namespace.namespace import Namespace
from shmq.native import _clock as time
from shmq.native import _group, _stream

log = logging.getLogger("shmq")

#: How long one wait for memory lasts, in seconds.
_PAUSE = 0.05

#: Attaches to the ``"queue"`` or ``"stream"`` of that name. Raises the matching error.
Attach = Callable[[str, Namespace, str], Any]

#: The fields used of an entry's header: see stream/entry.h.
_ENTRY: Final = struct.Struct("<I28xIII4x")

#: The entry's bytes, the record's size, its key.
Entry = tuple[bytes, int, bytes | None]

_GONE = (NoSuchQueue, QueueDeleted, NoSuchStream, StreamDeleted)


class TransactionHandles:
    """The queues, streams and groups of a transaction; the committing process has them open."""

    def __init__(self, namespace: Namespace, attach: Attach) -> None:
        self._namespace = namespace
        self._attach = attach
        #: Handles that are already open, by kind and name; for a group, by its stream and name.
        self.open: dict[tuple[str, str | int, str], Any] = {}

    @contextlib.contextmanager
    def opened(self, kind: str, name: str, identity: int) -> Iterator[Any]:
        """The queue or the stream; None if it is gone, or was recreated.

        If it turns out to be gone or damaged within the block, the block ends.
        """
        with contextlib.ExitStack() as stack:
            found = self._find(kind, name, identity, stack)
            try:
                yield found
            except _GONE:
                pass
            except SegmentError as error:
                log.warning("a committed transaction leaves out %s %s: %s", kind, name, error)

    def _find(self, kind: str, name: str, identity: int, stack: contextlib.ExitStack) -> Any:
        found = self.open.get((kind, identity, name))
        if found is not None:
            return found
        try:
            found = self._attach(kind, self._namespace, name)
        except _GONE:
            return None
        except SegmentError as error:
            log.warning("a committed transaction leaves out %s %s: %s", kind, name, error)
            return None
        stack.callback(found.close)
        return found if found.identity == identity else None

    def group_state(self, stream: int, group: str) -> _group.GroupState | None:
        """The group; None if it is gone."""
        found = self.open.get(("group", stream, group))
        return group_files.look_at(self._namespace, stream, group) if found is None else found


def happen(handles: TransactionHandles, transaction: dict[str, Any], *, wait: bool) -> bool:
    """Apply all of it; False if, without ``wait``, there is not enough room for some of it yet.

    What was deleted in the meantime is left out.
    """
    take_in(handles, transaction)
    return put_out(handles, transaction, wait=wait)


def take_in(handles: TransactionHandles, transaction: dict[str, Any]) -> None:
    """Apply the inputs: commit the offsets and acknowledge the messages."""
    for offsets in transaction["offsets"]:
        _commit_offsets(handles, *offsets)
    for acks in transaction["acks"]:
        _ack(handles, *acks)


def put_out(handles: TransactionHandles, transaction: dict[str, Any], *, wait: bool) -> bool:
    """Apply the outputs: publish the messages and append the records; ``wait`` as in `happen`."""
    process = transaction["process"]
    for puts in transaction["puts"]:
        _publish(handles, process, *puts)
    waiting = set()
    for one in transaction["appends"]:
        # Later records must not precede waiting ones, whose sequences would count as known then.
        if one[0] in waiting or not _append(handles, process, *one, wait=wait):
            waiting.add(one[0])
    return not waiting


def _commit_offsets(
    handles: TransactionHandles,
    stream: int,
    group: str,
    group_id: int,
    member: int,
    offsets: dict[int, int],
) -> None:
    group_state = handles.group_state(stream, group)
    if group_state is None or group_state.options["group_id"] != group_id:
        return
    with contextlib.suppress(StreamDeleted):
        for partition, offset in offsets.items():
            if not group_state.commit(partition, member, offset):
                log.warning(
                    "group %s: partition %s was taken from member %s in the middle of a "
                    "transaction, which commits offset %s",
                    *(group, partition, member, offset),
                )


def _ack(handles: TransactionHandles, name: str, identity: int, receipts: list[int]) -> None:
    with handles.opened("queue", name, identity) as queue:
        if queue is not None:
            queue.ack_many(receipts)


def _publish(
    handles: TransactionHandles, process: int, name: str, identity: int, receipts: list[int]
) -> None:
    with handles.opened("queue", name, identity) as queue:
        if queue is None:
            return
        for receipt in receipts:
            queue.transfer.publish_copy(receipt)
        for receipt, origin, sequence, _ in queue.transfer.orphans():
            if origin == process and sequence & TRANSACTION:
                queue.transfer.publish_copy(receipt)


def _append(
    handles: TransactionHandles,
    process: int,
    name: str,
    identity: int,
    partition: int,
    sequence: int,
    block: bytes,
    *,
    wait: bool,
) -> bool:
    """Append a block; whether there was room."""
    with handles.opened("stream", name, identity) as stream:
        while stream is not None:
            how = {"producer": process, "gaps": True, "wait": wait, "confirm": "memory"}
            try:
                try:
                    stream.append_block(block, partition=partition, sequence=sequence, **how)
                except PartitionSealed:
                    _append_later(stream, partition, sequence, block, how)
                break
            except (Full, NoSpace) as error:
                if not wait:
                    log.info("what was committed waits for room: %s", error)
                    return False
                time.sleep(_PAUSE)
    return True


def _append_later(
    stream: Any, partition: int, sequence: int, block: bytes, how: dict[str, Any]
) -> None:
    """Append to the newer partitions: the stream was repartitioned since the commit.

    A record that is already in one of these partitions is known there by its sequence, even if that
    partition was sealed later; so they are tried in the order in which they were added.
    """
    left = list(enumerate(entries_of(block)))
    while left:
        for possible in later_partitions(stream, partition):
            left = _append_to(stream, possible, sequence, left, how)


def _append_to(
    stream: Any,
    possible: range,
    sequence: int,
    entries: list[tuple[int, Entry]],
    how: dict[str, Any],
) -> list[tuple[int, Entry]]:
    """Append entries by key; returns those whose partitions are sealed."""
    sealed = []
    for at, of_partition in by_partition(entries, possible).items():
        joined = b"".join(entry for _, (entry, *_) in of_partition)
        try:
            stream.append_block(joined, partition=at, sequence=sequence + of_partition[0][0], **how)
        except PartitionSealed:
            sealed += of_partition
    return sorted(sealed, key=lambda numbered: numbered[0])


# ---- records as entries of a stream, and the partitions that they belong to ----


def entries_of(block: bytes) -> Iterator[Entry]:
    """The entries of a block of records."""
    at = 0
    while at < len(block):
        words, key, headers, value = _ENTRY.unpack_from(block, at)
        end = at + 8 + 8 * words
        begin = at + _ENTRY.size + value
        is_keyed = block[at + 9] & _stream.ENTRY_KEYED
        found = block[begin : begin + key] if is_keyed else None
        yield block[at:end], key + headers + value, found
        at = end


def later_partitions(stream: Any, partition: int) -> list[range]:
    """The partitions that replaced this one, a range for each repartition."""
    offsets = stream.offsets()  # of one moment: the stream may be repartitioned meanwhile
    begins = sorted({found.behind for found in offsets if found.behind > partition})
    return [
        range(begin, end) for begin, end in zip(begins, [*begins[1:], len(offsets)], strict=True)
    ]


def by_partition(
    entries: Iterable[tuple[int, Entry]], possible: range
) -> dict[int, list[tuple[int, Entry]]]:
    """The numbered entries by the partition of their keys; without a key, the first partition."""
    found: dict[int, list[tuple[int, Entry]]] = {}
    for number, entry in entries:
        key = entry[2]
        at = possible[0 if key is None else zlib.crc32(key) % len(possible)]
        found.setdefault(at, []).append((number, entry))
    return found
