"""A record as JSON, or as a line of text. ``docs/cli.md`` fixes the shape of the JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import shmq
from shmq.cli.shared.escape import printable
from shmq.cli.shared.render import as_text, body_of, dumps, plain

__all__ = ["as_dict", "writer"]


class _Seen:
    """A record, as the functions that show messages want it."""

    def __init__(self, record: shmq.Record) -> None:
        self._record = record

    @property
    def body(self) -> Any:
        """The value, decoded."""
        return self._record.body

    @property
    def view(self) -> memoryview:
        """The value's bytes."""
        return memoryview(self._record.value)


def as_dict(record: shmq.Record) -> dict[str, Any]:
    """The record out of what JSON can hold; ``encoding`` says what ``value`` is."""
    value, encoding = body_of(_Seen(record))
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "headers": plain(record.headers),
        "codec": record.codec,
        "value": value,
        "encoding": encoding,
    }


def writer(as_json: bool, with_key: bool) -> Callable[[shmq.Record], bytes]:
    """What turns a record into the line that is written of it."""
    if as_json:
        return lambda record: dumps(as_dict(record)).encode() + b"\n"

    def line(record: shmq.Record) -> bytes:
        text = as_text(_Seen(record))
        if sys.stdout.isatty():
            text = printable(text, keep="\n\t")
        key = (record.key or b"") + b"\t" if with_key else b""
        return key + text.encode(errors="backslashreplace") + b"\n"

    return line
