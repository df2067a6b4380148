"""What every put does before its message leaves: properties, limits, counting those that wait."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.api.options import QueueOptions, check_one_of
from shmq.api.properties import PROPERTIES, Call
from shmq.errors import MessageTooLarge
from shmq.fork_safe import new_lock
from shmq.model.codec import codecs
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.client.ports.queue import QueueKey
    from shmq.model.codec.codecs import Default

_FIXMAP, _MAP16 = 0x80, 0xDE
_MOST_FIXED = 15

_CODEC = {
    number: codecs.pack_properties({"codec": name})[1:] for number, name in enumerate(codecs.CODECS)
}
_PLAIN = {number: bytes([_FIXMAP + 1]) + entry for number, entry in _CODEC.items()}


def check_names(call: Call, given: Iterable[str]) -> None:
    """Raise TypeError for a keyword that the call does not take."""
    for name in given:
        if name == "confirm" or call not in getattr(PROPERTIES.get(name), "calls", ()):
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")


def has_dedupe_id(queue: Any, properties: Mapping[str, Any]) -> bool:
    """Whether the put has a dedupe id. Raises InvalidOption if the queue would not remember it."""
    dedupe_id = properties.get("dedupe_id")
    if isinstance(dedupe_id, str) and not queue.options.dedupe_window:
        raise errors.no_dedupe_window(queue.name, dedupe_id)
    return dedupe_id is not None


def encode(
    body: Any,
    priorities: int,
    properties: Mapping[str, Any],
    encoded: bool = False,
    default: Default | None = None,
) -> tuple[bytes | None, Any]:
    """The packed properties, or None, and the body as a buffer. Raises what ``put`` raises."""
    return encode_many([body], priorities, properties, encoded, default)[0]


def encode_many(
    bodies: Iterable[Any],
    priorities: int,
    properties: Mapping[str, Any],
    encoded: bool = False,
    default: Default | None = None,
) -> list[tuple[bytes | None, Any]]:
    """`encode` for bodies with the same properties, whose names were checked."""
    given = dict(properties)
    found = []
    for body in bodies:
        buffer, number, meta, *_ = _core.encode_message(
            body, given, priorities, encoded=encoded, default=default
        )
        if 0 < number < len(codecs.CODECS):
            meta = with_entry(meta, _CODEC[number]) if meta else _PLAIN[number]
        found.append((meta or None, buffer))
    return found


def with_entry(meta: bytes, entry: bytes) -> bytes:
    """The packed map with one more entry."""
    count = meta[0] - _FIXMAP
    if count < _MOST_FIXED:
        return bytes([meta[0] + 1]) + meta[1:] + entry
    return bytes([_MAP16, 0, count + 1]) + meta[1:] + entry


_waiting_puts: collections.Counter[QueueKey] = collections.Counter()
_waiting_lock = new_lock()


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


os.register_at_fork(after_in_child=_waiting_puts.clear)


def check_many(bodies: object) -> None:
    """Raise TypeError for one body in place of many."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | dict):
        raise TypeError(
            f"bodies={bodies!r:.60} is one body, not many: put it in a list, or use put"
        )


def never_fits(name: str, options: QueueOptions, size: int, more: int) -> MessageTooLarge:
    """The error for a body of ``size`` bytes, with ``more`` of properties, that no put takes."""
    return MessageTooLarge(
        f"a body of {size} bytes with {more} bytes of properties can never fit into queue "
        f"{name!r}: max_message_bytes={options.max_message_bytes}, "
        f"arena_bytes={options.arena_bytes}"
    )


def is_full(name: str, options: QueueOptions, why: str | None = None) -> errors.Full:
    """The error for a queue without room."""
    return errors.Full(
        f"queue {name!r} is full: it holds at most {options.capacity} messages and "
        f"{options.arena_bytes} bytes; {why or 'consume, wait (block=True), or make it larger'}"
    )


def waits_for_room(options: QueueOptions, block: bool | None, timeout: float | None) -> bool:
    """Return whether a put waits for room."""
    if block is None:
        block = options.overflow == "block" or timeout is not None
    return bool(block) and timeout != 0


def is_durable(queue: Any, confirm: str | None, kind: str = "queue") -> bool:
    """Whether a put or an append with that ``confirm`` must be on disk. Raises what it raises."""
    by_option = bool(queue.options.confirm == "disk")
    if confirm is None:
        return by_option
    check_one_of("confirm", confirm, ("memory", "disk"))
    if confirm == "disk" and queue.options.durability != "journal":
        raise errors.InvalidOption(
            f"confirm='disk': {kind} {queue.name!r} keeps no journal "
            f"(durability={queue.options.durability!r}): make it with durability='journal', or "
            f"take confirm='memory'"
        )
    # A server applies the option of the queue or stream to every put or append.
    return confirm == "disk" or by_option


def pack_records(data: Any, lengths: Any) -> bytes:
    """Return the body of a packed batch."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("data must be one contiguous buffer")
    trailer = _core.packed_trailer(view.nbytes, lengths)
    return b"".join((view.cast("B") if view.nbytes else b"", trailer))
