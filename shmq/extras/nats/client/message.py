"""A message of a cluster, and its properties on the wire."""

from __future__ import annotations

import base64
import contextlib
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from shmq import api
from shmq.api import properties as table
from shmq.client.handles.batch import returning
from shmq.client.shared.policy import POLICY, dead_letter
from shmq.errors import AlreadySettled, InvalidOption, LeaseExpired
from shmq.model.codec import codecs
from shmq.native import _clock as time
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.api.options import QueueOptions
    from shmq.extras.nats.client.lease import Lease

log = logging.getLogger("shmq")

#: The header with the properties: base64 of the msgpack map of the wire protocol.
PROPERTIES: Final = "Shmq-Properties"
#: Headers that tools for NATS look for, in plain text as well.
_PLAIN: Final = re.compile(r"traceparent|tracestate|ce-[\w.!#$%&'*+^`|~-]+", re.ASCII)
_MOST_PLAIN: Final = 512
#: What the properties are that this client relies on.
_KINDS: Final = {"int": int, "str": str, "map": dict}
_TYPES: Final[Mapping[str, type]] = {
    **{row.key: _KINDS[row.kind] for row in table.PROPERTIES.values() if row.key},
    "key": bytes,
    "dead": dict,
}
_OF_DEAD: Final[Mapping[str, type]] = {
    "reason": str, "queue": str, "deliveries": int, "at": int, "ttl": int,
}  # fmt: skip


def packed(properties: Mapping[str, Any], meta: bytes | None = None) -> dict[str, str]:
    """The headers of a message with these properties; ``meta`` is the same, packed already."""
    if not properties:
        return {}
    meta = meta or codecs.pack_properties(properties)
    headers = {PROPERTIES: base64.b64encode(meta).decode()}
    given = properties.get("headers") or {}
    for key, value in given.items():
        if isinstance(key, str) and _PLAIN.fullmatch(key):
            text = str(value)
            if text.isascii() and text.isprintable() and text.strip() == text:
                headers[key] = text[:_MOST_PLAIN]
    return headers


def unpacked(headers: Mapping[str, str] | None) -> dict[str, Any]:
    """The properties; empty if there are none.

    Another client may have written anything there. A message whose properties cannot be read has
    none, which is logged: an error would come again with each delivery, and hold up the others.
    """
    text = (headers or {}).get(PROPERTIES)
    if not text:
        return {}
    try:
        properties = codecs.unpack_properties(base64.b64decode(text, validate=True))
        _check(properties, _TYPES)
        if "dead" in properties:
            _check(dict.fromkeys(_OF_DEAD) | {"ttl": 0} | properties["dead"], _OF_DEAD)
    except (ValueError, TypeError) as error:
        log.warning(
            "a message comes without its properties, as its header %s cannot be read: %s",
            PROPERTIES, error,
        )  # fmt: skip
        return {}
    return properties


def _check(properties: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Raise TypeError for a property of another type."""
    for name, value in properties.items():
        wanted = types.get(name, object)
        if not isinstance(value, wanted):
            raise TypeError(
                f"property {name} is a {type(value).__name__}, and must be a {wanted.__name__}"
            )


def priority_of(properties: Mapping[str, Any], options: QueueOptions) -> int:
    """The priority of a message with these properties."""
    return int(properties.get("pri", options.priorities // 2))


def ttl_of(properties: Mapping[str, Any], options: QueueOptions) -> float | None:
    """After how many seconds from its put a message expires, or a dead letter; None: never."""
    dead = properties.get("dead")
    ttl = (properties if dead is None else dead).get("ttl")
    if ttl is None:
        return options.ttl if dead is None else None
    return float(ttl) / 1000


class NatsMessage(api.Message):
    """Implements :class:`shmq.api.Message`. It owns its bytes; the server owns its lease."""

    def __init__(
        self,
        queue: Any,
        raw: bytes,
        properties: dict[str, Any],
        sequence: int,
        priority: int,
        lease: Lease | None = None,
    ) -> None:
        self._queue = queue
        self._raw = raw
        self._all = properties
        self._sequence = sequence
        self._priority = priority
        #: None: a copy, which cannot be settled.
        self.lease = lease
        self._count = 0 if lease is None else lease.delivery.deliveries - lease.uncounted
        #: How it was settled, and when; empty: it was not.
        self._settled = ""
        self._settled_at = 0.0
        #: Whether the application has it, and not its receipt.
        self.in_hand = False
        #: The iterator that handed it out, which collects acknowledgements.
        self.consumer: Any = None
        self._decoded: list[Any] = []

    @property
    def body(self) -> Any:
        if not self._decoded:
            codec = self.codec
            number = codecs.CODECS.index(codec) if codec in codecs.CODECS else codecs.OTHER
            self._decoded.append(codecs.decode_body(self._raw, number, codec))
        return self._decoded[0]

    @property
    def raw(self) -> bytes:
        """The body's bytes."""
        return self._raw

    @property
    def view(self) -> memoryview:
        return memoryview(self._raw)

    def readinto(self, buffer: Any) -> int:
        size = len(self._raw)
        target = memoryview(buffer)
        if target.readonly:
            raise BufferError("the buffer is read-only")
        target = target.cast("B") if target.nbytes else target
        if target.nbytes < size:
            raise InvalidOption(f"a buffer of {target.nbytes} bytes cannot hold a body of {size}")
        target[:size] = self._raw
        return size

    @property
    def headers(self) -> Mapping[str, Any]:
        return self._all.get("headers") or {}

    @property
    def properties(self) -> Mapping[str, Any]:
        if self._all.get("codec") in codecs.CODECS:
            return {key: value for key, value in self._all.items() if key != "codec"}
        return self._all

    @property
    def dead(self) -> api.DeadLetter | None:
        found = self._all.get("dead")
        return None if found is None else dead_letter(found)

    @property
    def last_error(self) -> api.Failure | None:
        kept = None if self.lease is None else self.lease.error
        found: api.Failure | None = POLICY.failure(kept or self._all.get("error"))
        return found

    @property
    def all_properties(self) -> dict[str, Any]:
        """The properties with the codec, as they were put."""
        return self._all

    def recount(self, uncounted: int) -> None:
        """Leave out so many deliveries, which were returned uncounted."""
        if self.lease is not None:
            self._count = self.lease.delivery.deliveries - uncounted

    @property
    def codec(self) -> str:
        return str(self._all.get("codec", "bytes"))

    @property
    def priority(self) -> int:
        return self._priority

    @property
    def sequence(self) -> int:
        return self._sequence

    @property
    def delivery_count(self) -> int:
        return self._count

    @property
    def receipt(self) -> int:
        self.in_hand = False
        if self.lease is None:
            return 0
        receipt: int = self._queue.held.receipt_of(self.lease)
        return receipt

    @property
    def is_leased(self) -> bool:
        """Whether the lease holds, as far as the client can tell."""
        return self.lease is not None and self.lease.is_good

    def _claim(self) -> Lease:
        if self.lease is None:
            raise LeaseExpired(
                f"message {self._sequence} of queue {self._queue.name!r} is a copy, which cannot "
                f"be settled"
            )
        if self._settled:
            what = f"message {self._sequence} of queue {self._queue.name!r}"
            raise AlreadySettled.of(what, self._settled, time.monotonic() - self._settled_at)
        return self.lease

    def was_settled(self, how: str) -> None:
        """Note that its holder has settled it."""
        self._settled, self._settled_at = how, time.monotonic()

    def ack(self) -> None:
        self._queue.ack_lease(self._claim(), self.consumer)
        self.was_settled("ack")

    def nack(
        self,
        delay: float | None = None,
        *,
        counted: bool = True,
        error: BaseException | api.Failure | str | None = None,
    ) -> None:
        kind, ms = returning(delay, counted)
        self._queue.settle_lease(kind, self._claim(), ms, self, _core.pack_error(error, counted))
        self.was_settled("nack")

    def reject(self, reason: BaseException | api.Failure | str | None = None) -> None:
        self._queue.settle_lease("reject", self._claim(), None, self, _core.pack_error(reason))
        self.was_settled("reject")

    def extend(self, seconds: float) -> None:
        ms = _core.milliseconds("seconds", seconds)
        self._queue.settle_lease("extend", self._claim(), ms, self)

    @property
    def settled(self) -> bool:
        return bool(self._settled)

    def __reduce__(self) -> Any:
        raise TypeError("a message cannot be pickled: pass its receipt to the other process")

    def __del__(self) -> None:
        lease = getattr(self, "lease", None)
        if lease is not None and self.in_hand and not self._settled and lease.is_good:
            with contextlib.suppress(AttributeError):  # the interpreter ends
                what = f"message {self._sequence} of queue {self._queue.name!r}"
                _core.warn_dropped(what, frames=2)

    def __repr__(self) -> str:
        return f"<Message {self._sequence} of {self._queue.name!r}, {len(self._raw)} bytes>"
