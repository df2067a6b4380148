"""A simple reader of a queue's files: record by record, into a dict."""

from __future__ import annotations

from typing import Any

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import read_header
from shmq.disk.storage.paths import catalog, segment_name, snapshot_name
from shmq.native._core import read_record


def chain(disk: Disk, queue: str) -> dict[int, dict[str, Any]]:
    """The messages that the queue's files hold, by sequence number."""
    files = catalog(disk.names())[queue]
    live: dict[int, dict[str, Any]] = {}
    first = 1
    if files.snapshot:
        data = disk.path(snapshot_name(queue)).read_bytes()
        first = read_header(data, queue)[0].number
        assert replay(data, len(data), live) == "footer"
    raws = {
        number: disk.path(segment_name(queue, number)).read_bytes()
        for number in files.segments
        if number >= first
    }
    assert not raws or min(raws) == first, "a segment is missing"
    assert list(raws) == list(range(first, first + len(raws))), "a segment is missing"
    for number, data in raws.items():
        behind = raws.get(number + 1)
        end = read_header(behind, queue)[0].previous_end if behind else len(data)
        replay(data, end, live)
    return live


def replay(data: bytes, end: int, live: dict[int, dict[str, Any]]) -> str:
    """Apply the file's records up to byte ``end``; returns the kind of the last one."""
    last = ""
    for kind, fields in _records(data, end):
        last = kind
        if kind == "put":
            live[fields["seq"]] = fields
        elif kind == "update" and fields["seq"] in live:
            live[fields["seq"]].update(fields)
        elif kind == "settle":
            for seq in fields["entries"]:
                live.pop(seq, None)
    return last


def record_types(data: bytes) -> list[str]:
    """The kinds of all records of a file, in order."""
    return [kind for kind, _ in _records(data, len(data))]


def _records(data: bytes, end: int) -> list[tuple[str, dict[str, Any]]]:
    header, at = read_header(data, "file")
    found = []
    while at < end:
        how, kind, size, fields = read_record(data, at, header.salt)
        if how != "ok" or at + size > end:
            break
        if kind == "batch" and at + size + fields["bytes"] > end:
            break
        found.append((kind, fields))
        at += size
    return found
