"""Puts to a queue of a server: encoding for a PRODUCE request, waiting puts, and loans."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from shmq import api
from shmq.api.options import QueueOptions
from shmq.codec import codecs
from shmq.errors import InvalidOption, MessageTooLarge
from shmq.native._core import plain_number

__all__ = ["Item", "RemoteLoan", "check_size", "encode", "waiting_put", "waiting_puts", "with_id"]

#: An item of PRODUCE_BATCH: bytes without properties, or packed properties and a buffer.
Item = bytes | tuple[bytes | None, Any]

_FIXMAP, _MAP16 = 0x80, 0xDE
_MOST_FIXED = 15

_CODEC = {
    number: codecs.pack_properties({"codec": name})[1:] for number, name in enumerate(codecs.CODECS)
}
_PLAIN = {number: bytes([_FIXMAP + 1]) + entry for number, entry in _CODEC.items()}


class _Ids:
    """Unique ids: a prefix of the process and a number."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.prefix = ""

    def next(self) -> str:
        if not self.prefix:
            self.prefix = secrets.token_hex(8)
        return f"{self.prefix}.{next(self._numbers):x}"

    def renew(self) -> None:
        """Take a new prefix in the child of a fork, which is another process."""
        self.prefix = ""


_ids = _Ids()


def encode(
    body: Any, priorities: int, properties: Mapping[str, Any], encoded: bool = False
) -> tuple[bytes | None, Any]:
    """The packed properties, or None, and the body as a buffer. Raises what ``put`` raises."""
    wanted: dict[str, Any] = dict.fromkeys(_ARGUMENTS)
    for key, value in properties.items():
        if key not in wanted:
            raise TypeError(f"put() got an unexpected keyword argument {key!r}")
        wanted[key] = value
    buffer, number, meta, *_ = codecs.encode_message(
        body, priorities=priorities, encoded=encoded, **wanted
    )
    if 0 < number < len(codecs.CODECS):
        meta = _with_entry(meta, _CODEC[number]) if meta else _PLAIN[number]
    return meta or None, buffer


_ARGUMENTS = (
    "codec",
    "priority",
    "group",
    "headers",
    "delay",
    "deliver_at",
    "ttl",
    "dedupe_id",
    "reply_to",
    "correlation",
)


def _with_entry(meta: bytes, entry: bytes) -> bytes:
    """The packed map with one more entry."""
    count = meta[0] - _FIXMAP
    if count < _MOST_FIXED:
        return bytes([meta[0] + 1]) + meta[1:] + entry
    return bytes([_MAP16, 0, count + 1]) + meta[1:] + entry


def with_id(meta: bytes | None) -> bytes:
    """The packed properties with a generated dedupe id."""
    entry = codecs.pack_properties({"dedupe": _ids.next()})
    return entry if meta is None else _with_entry(meta, entry[1:])


def check_size(name: str, options: QueueOptions, size: int, meta: int, max_frame: int) -> None:
    """Raise MessageTooLarge for a message that the queue, or a frame, can never hold."""
    if size > options.max_message_bytes or size + meta > options.arena_bytes:
        raise MessageTooLarge(
            f"a body of {size} bytes with {meta} bytes of properties can never fit into queue "
            f"{name!r}: max_message_bytes={options.max_message_bytes}, "
            f"arena_bytes={options.arena_bytes}"
        )
    if size + meta + len(name) + 16 > max_frame:
        raise MessageTooLarge(
            f"a body of {size} bytes with {meta} bytes of properties does not fit into a frame of "
            f"the server of queue {name!r}, which takes {max_frame} bytes (max_frame)"
        )


os.register_at_fork(after_in_child=_ids.renew)


#: The server's URL, the namespace, and the queue's name.
QueueKey = tuple[str, str, str]

_waiting_puts: collections.Counter[QueueKey] = collections.Counter()
_waiting_lock = threading.Lock()


@contextlib.contextmanager
def waiting_put(key: QueueKey) -> Iterator[None]:
    """Count a put that waits for room, by retrying, during the block."""
    with _waiting_lock:
        _waiting_puts[key] += 1
    try:
        yield
    finally:
        with _waiting_lock:
            _waiting_puts[key] -= 1
            if not _waiting_puts[key]:
                del _waiting_puts[key]


def waiting_puts(key: QueueKey) -> int:
    """How many puts of this process wait for room in the queue."""
    with _waiting_lock:
        return _waiting_puts[key]


class RemoteLoan(api.Loan):
    """See :class:`shmq.api.Loan`. It takes no space in the queue before its commit."""

    def __init__(self, size: int, put: Callable[[memoryview], api.Put]) -> None:
        self._memory = bytearray(size)
        self._view = memoryview(self._memory)
        self._commit = put
        self._put: api.Put | None = None
        self._ended = False

    @property
    def view(self) -> memoryview:
        """See :class:`shmq.api.Loan`."""
        self._check()
        return self._view

    @property
    def put(self) -> api.Put | None:
        """See :class:`shmq.api.Loan`."""
        return self._put

    def commit(self, size: int | None = None) -> api.Put:
        """See :class:`shmq.api.Loan`."""
        self._check()
        whole = len(self._memory)
        if size is not None:
            size = plain_number(size)
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(f"size={size!r} must be an int, not {type(size).__name__}")
            if not 0 <= size <= whole:
                raise InvalidOption(f"size={size} is not within the loan: 0 to {whole}")
        self._end()
        with memoryview(self._memory) as view, view[: whole if size is None else size] as body:
            self._put = self._commit(body)
        return self._put

    def drop(self) -> None:
        """See :class:`shmq.api.Loan`."""
        if not self._ended:
            self._end()

    def _check(self) -> None:
        if self._ended:
            raise ValueError("the loan has ended: it was committed or dropped")

    def _end(self) -> None:
        self._ended = True
        with contextlib.suppress(BufferError):  # a view of it still exists
            self._view.release()

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit()
        else:
            self.drop()
