"""Completes transactions that were noted on disk, before queues and streams are recovered.

The files show which parts of a transaction they have: a message that it put is known by its
origin, a record by its producer's sequence number; its settlements are repeated. The missing
parts are appended to the queue's journal or the partition, or written to the stream's metadata
file, as the writer would have. So what is recovered then has all of it; repeating this changes
nothing.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import time
from collections.abc import Collection, Iterator
from typing import Any, Final

from shmq.client.transaction.apply import Entry, by_partition, entries_of
from shmq.client.transaction.transaction_log import noted as in_memory
from shmq.client.transaction.transaction_log import read_transactions
from shmq.disk.persistence.journal import Journal
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_journal import Commit, StreamJournal
from shmq.disk.persistence.stream_recovery import StoredStream, durable_options, stored_stream
from shmq.disk.storage.disk import Disk, sync_file
from shmq.disk.storage.file_header import QueueIdentity, StreamIdentity
from shmq.disk.storage.paths import catalog, partition_directory, stream_directory
from shmq.disk.storage.queue_files import QueueFiles
from shmq.disk.storage.queue_reader import lineage_of, load_queue
from shmq.disk.storage.stream_files import StreamFiles
from shmq.disk.storage.stream_meta import StreamCard, read_card, write_card
from shmq.disk.storage.transaction_file import Part, TransactionFile, parts_of, read_noted
from shmq.errors import ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core
from shmq.native._core import pack_batch, pack_record

log = logging.getLogger("shmq")

#: An entry's head, and the producer's part after it: see stream/entry.h.
_ENTRY: Final = struct.Struct("<IIBBBBIQqIIII")
_PRODUCER: Final = struct.Struct("<QQ")
_PRODUCED: Final = 1


def complete_transactions(disk: Disk, live: Collection[tuple[str, int]]) -> list[Part]:
    """Complete noted transactions in the files of what is not ``live``; returns those parts.

    ``live``: names and identities of queues and streams in memory, whose writer continues. A
    part whose files are damaged is logged, and stays noted. Raises DamagedFile if the file of
    the transactions is damaged, IncompatibleFile, and OSError.
    """
    noted = read_noted(disk)
    lost = sorted({part for one in noted for part in one.parts if part[1:] not in live})
    completed = []
    for part in lost:
        works = [one.work for one in noted if part in one.parts]
        try:
            _COMPLETE[part[0]](disk, part, works)
        except ShmqError as error:
            log.error("a transaction is not completed in %s %s: %s", part[0], part[1], error)
            continue
        completed.append(part)
        for one in noted:
            one.parts.discard(part)
    if completed:
        file = TransactionFile(disk)
        left = [one for one in noted if one.parts]
        if left:
            file.replace(left)
            file.abandon()
        else:
            file.remove()
    return completed


def drop_the_lost(namespace: Namespace, live: Collection[tuple[str, int]]) -> None:
    """Forget transactions in memory with a part whose queue or stream is gone.

    They were not noted, so the disk has no part of them; and memory has not all of them any more.
    """
    for path in in_memory(namespace).values():
        with contextlib.suppress(ShmqError, FileNotFoundError):
            record, _ = read_transactions(path)
            if record is not None:
                parts = parts_of(record["durable"])
                if any(part[1:] not in live for part in parts):
                    path.unlink()


def _steps_of(
    works: list[dict[str, Any]], kind: str, part: Part
) -> Iterator[tuple[int, list[Any]]]:
    """The steps of that kind for the part, in order, each with its process."""
    for work in works:
        for _, _, *step in (one for one in work[kind] if (one[0], one[1]) == part[1:]):
            yield work["process"], step


# ---- queues ----


def _complete_queue(disk: Disk, part: Part, works: list[dict[str, Any]]) -> None:
    _, name, identity = part
    files = catalog(disk.names()).get(name)
    names = lineage_of(disk, files) if files is not None else []
    if not names:
        return  # it was deleted
    disk.sync_directory()
    for one in names:
        sync_file(disk, one)
    with load_queue(disk, names) as chain:
        if chain.hash_key != identity:
            return
        acks = [seq for _, (seqs,) in _steps_of(works, "acks", part) for seq in seqs]
        settled = [seq for seq in acks if chain.discard([seq])]
        known = {origin[:2] for origin in chain.origins()}
        puts = [
            (process, *message)
            for process, (messages,) in _steps_of(works, "puts", part)
            for message in messages
            if (process, message[0]) not in known
        ]
        if settled or puts:
            _write_queue(disk, chain, settled, puts, max([chain.last_seq, *acks]))


def _write_queue(
    disk: Disk, chain: QueueFiles, settled: list[int], puts: list[tuple[Any, ...]], last: int
) -> None:
    """Write one commit after the end of the journal."""
    identity = QueueIdentity(chain.name, max(chain.queue_ids), chain.hash_key, chain.options)
    journal = Journal(disk, lambda: identity, chain.segment, chain.end, WriteSizes())
    batch = chain.last_batch + 1
    salt = journal.ready(batch)
    records = [pack_record("settle", salt, entries=settled)] if settled else []
    for put in puts:
        last += 1
        records.append(_pack_put(chain.hash_key, salt, last, *put))
    data = b"".join(records)
    data = pack_batch(data, salt, batch, time.time_ns(), last) + data
    try:
        journal.append(
            _core.Collected(batch, memoryview(data), last, len(puts), len(settled), False)
        )
    finally:
        journal.abandon()
    log.info(
        "queue %s: %d messages put and %d settled by transactions are in its journal now",
        *(chain.name, len(puts), len(settled)),
    )


def _pack_put(
    hash_key: int,
    salt: int,
    seq: int,
    process: int,
    number: int,
    body: bytes,
    meta: bytes,
    codec: int,
    priority: int,
    group: str | None,
    until: int | None,
) -> bytes:
    fields: dict[str, Any] = {} if until is None else {"expires": until}
    if group is not None:
        packed = group.encode("utf-8", "surrogatepass")
        fields["group"] = _core.siphash(hash_key, packed)[0] or 1
    return pack_record(
        "put", salt, seq=seq, priority=priority, codec=codec, put_at=time.time_ns(), body=body,
        meta=meta or b"", origin_queue=process, origin_seq=number, **fields,
    )  # fmt: skip


# ---- streams ----


def _complete_stream(disk: Disk, part: Part, works: list[dict[str, Any]]) -> None:
    _, name, identity = part
    stored = stored_stream(disk, name, identity)
    if stored is None:
        return  # it was deleted
    if stored.error is not None:
        raise stored.error
    for process, (partition, sequence, block, begin) in _steps_of(works, "appends", part):
        known = _list_known(disk, stored, partition, begin, process)
        left = [
            (sequence + at, entry)
            for at, entry in enumerate(entries_of(block))
            if sequence + at not in known
        ]
        for to, entries in _choose_partitions(stored, partition, left).items():
            _append(disk, stored, to, process, entries)


def _choose_partitions(
    stored: StoredStream, partition: int, entries: list[tuple[int, Entry]]
) -> dict[int, list[tuple[int, Entry]]]:
    """The entries by target partition; those of a sealed or lost one go to the newest ones."""
    era = stored.eras[-1]
    if partition in era.partitions:
        return {partition: entries} if entries else {}
    return by_partition(entries, era.partitions)


def _list_known(
    disk: Disk, stored: StoredStream, partition: int, begin: int, process: int
) -> set[int]:
    """The process's sequence numbers that are in that partition or later ones."""
    found: set[int] = set()
    for number, end in enumerate(stored.ends):
        if number < partition < len(stored.ends):
            continue
        offset = begin if number == partition else end.earliest
        files = StreamFiles(disk.under(partition_directory(stored.name, stored.identity, number)))
        offset = max(offset, end.earliest)
        while (block := files.block(offset, end.next)) is not None:
            found.update(_read_sequences(block.data, process))
            offset = block.next
    return found


def _read_sequences(data: memoryview, process: int) -> Iterator[int]:
    at = 0
    while at < len(data):
        words, _, kind, flags, _, _, count, *_ = _ENTRY.unpack_from(data, at)
        if kind == 10 and flags & _PRODUCED:
            producer, sequence = _PRODUCER.unpack_from(data, at + _ENTRY.size)
            if producer == process:
                yield from range(sequence, sequence + count)
        at += 8 + 8 * words


def _append(
    disk: Disk, stored: StoredStream, partition: int, process: int, entries: list[tuple[int, Entry]]
) -> None:
    """Write one commit after the end of the partition."""
    identity = StreamIdentity(stored.name, stored.identity, stored.identity, stored.options)
    end = stored.ends[partition]
    moment = max(time.time_ns(), end.time or 0)
    made = [
        _pack_entry(identity.salt, entry, process, sequence, end.next + at, moment)
        for at, (sequence, (entry, *_)) in enumerate(entries)
    ]
    below = disk.under(partition_directory(stored.name, stored.identity, partition))
    below.make()
    sizes = WriteSizes(segment=int(stored.options["segment_bytes"]))
    journal = StreamJournal(below, identity, partition, end.next, sizes)
    try:
        journal.append(Commit([memoryview(b"".join(made))], end.next, end.next + len(made)))
    finally:
        journal.abandon()
    stored.ends[partition] = type(end)(end.earliest, end.next + len(made), moment)
    log.info(
        "stream %s: %d records of a transaction are in partition %d now",
        *(stored.name, len(made), partition),
    )


def _pack_entry(
    salt: int, entry: bytes, process: int, sequence: int, offset: int, moment: int
) -> bytes:
    """The entry with its offset and time, and the process as its producer."""
    _, _, kind, flags, codec, compression, count, _, _, key, headers, value, raw = (
        _ENTRY.unpack_from(entry)
    )
    rest = entry[_ENTRY.size + (_PRODUCER.size if flags & _PRODUCED else 0) :]
    rest = rest[: value + key + headers]
    flags |= _PRODUCED
    head = _ENTRY.pack(
        0, 0, kind, flags, codec, compression, count, offset, moment, key, headers, value, raw
    )
    payload = head[8:] + _PRODUCER.pack(process, sequence) + rest
    payload = payload.ljust(-(-len(payload) // 8) * 8, b"\0")
    words = struct.pack("<I", len(payload) // 8)
    crc = _core.crc32c(payload, _core.crc32c(words, salt))
    return words + struct.pack("<I", crc) + payload


# ---- groups ----


def _complete_groups(disk: Disk, part: Part, works: list[dict[str, Any]]) -> None:
    _, name, identity = part
    own = disk.under(stream_directory(name, identity))
    found = read_card(own)
    if found is None:
        return  # it was deleted
    header, card = found
    groups = dict(card.groups)
    for _, (group, options, offsets) in _steps_of(works, "offsets", part):
        state = groups.setdefault(group, {"options": durable_options(options), "committed": []})
        committed = list(state["committed"])
        for partition, offset in offsets.items():
            committed += [None] * (partition + 1 - len(committed))
            committed[partition] = max(offset, committed[partition] or 0)
        groups[group] = {**state, "committed": committed}
    if groups != card.groups:
        options = dict(header.options)
        whose = StreamIdentity(name, header.queue_id, identity, options)
        write_card(own, whose, StreamCard(groups, card.eras))


_COMPLETE: Final = {
    "queue": _complete_queue,
    "stream": _complete_stream,
    "groups": _complete_groups,
}
