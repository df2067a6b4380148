"""Exchanges: handles, and putting copies of messages into several queues, some of them full.

The messages of one publish are encoded once, and prepared for every queue before any queue gets a
copy, so that an error that every put would raise is raised with nothing done. Then each queue with
room gets its copies; the call waits for the full ones, one after the other, without holding up the
others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from shmq import api
from shmq.api.options import check_one_of
from shmq.api.properties import PROPERTIES
from shmq.client.ports.exchange import ExchangePort
from shmq.client.shared.durable_wait import not_confirmed
from shmq.errors import (
    Full,
    MessageTooLarge,
    NoSuchExchange,
    NoSuchQueue,
    NoSuchStream,
    NotConfirmed,
    PublishRefused,
    QueueDeleted,
    ShmqError,
    StreamDeleted,
    Unroutable,
    closed_handle,
)
from shmq.model.codec import codecs
from shmq.model.routing.table import check_binding
from shmq.model.routing.topic import check_key
from shmq.native import _clock as time
from shmq.native._core import check_timeout, codec_number

if TYPE_CHECKING:
    from shmq.api.keywords import BindKeywords
    from shmq.model.codec.codecs import Default

#: The errors for missing targets.
_MISSING: Final[Mapping[str, type[ShmqError]]] = MappingProxyType(
    {"queue": NoSuchQueue, "stream": NoSuchStream, "exchange": NoSuchExchange}
)

#: The kinds of exchanges that by default reject what no binding matches: there a mistyped key or
#: header is likely, while no subscriber is usual for the others.
_MANDATORY: Final = frozenset({"direct", "headers"})


class ExchangeHandle(ExchangePort, api.Exchange):
    """Implements :class:`shmq.api.Exchange` on top of its port."""

    _closed = False
    #: Of `connect`, which sets it.
    default: Default | None = None

    def __init__(self, name: str, kind: api.ExchangeKind, alternate: str | None) -> None:
        self._name = name
        self._kind = kind
        self._alternate = alternate

    @property
    def name(self) -> str:
        return self._name

    @property
    def kind(self) -> api.ExchangeKind:
        return self._kind

    @property
    def alternate(self) -> str | None:
        return self._alternate

    def publish(
        self,
        body: api.Body,
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        *,
        mandatory: bool | None = None,
        **properties: Any,
    ) -> api.Published:
        return self._publish([body], key, block, timeout, mandatory, properties)

    def publish_many(
        self,
        bodies: Iterable[api.Body],
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        *,
        mandatory: bool | None = None,
        **properties: Any,
    ) -> api.Published:
        return self._publish(many(bodies, properties), key, block, timeout, mandatory, properties)

    def _publish(
        self,
        bodies: list[Any],
        key: str,
        block: bool | None,
        timeout: float | None,
        mandatory: bool | None,
        properties: dict[str, Any],
    ) -> api.Published:
        timeout = check_timeout(timeout)
        self._check_open()
        check_headers(properties.get("headers"))
        until = None if timeout is None else time.monotonic() + timeout
        confirm = properties.pop("confirm", None)
        if confirm is not None:
            confirm = check_one_of("confirm", confirm, ("memory", "disk"))
        if mandatory is None:
            mandatory = self._kind in _MANDATORY
        elif not isinstance(mandatory, bool):
            raise TypeError(f"mandatory={mandatory!r:.80} must be True, False or None")
        return self.route(bodies, check_key(key), block, until, confirm, mandatory, properties)

    # ---- bindings ----

    def bind(self, target: str, key: str = "", **how: Unpack[BindKeywords]) -> bool:
        return self._change("bind", target, key, **how)

    def unbind(self, target: str, key: str = "", **how: Unpack[BindKeywords]) -> bool:
        return self._change("unbind", target, key, **how)

    def _change(
        self,
        action: Literal["bind", "unbind"],
        target: str,
        key: str,
        kind: api.TargetKind = "queue",
        headers: Mapping[str, Any] | None = None,
        match: api.Match = "all",
    ) -> bool:
        binding = check_binding(self._kind, target, key, kind, headers, match)
        self._check_open()
        headers = None if headers is None else dict(headers)
        given = {"target": target, "key": key, "kind": kind, "headers": headers, "match": match}
        return self.change_binding(action, binding, given)

    # ---- the end ----

    def _check_open(self) -> None:
        if self._closed:
            raise closed_handle("exchange", self._name)

    def close(self) -> None:
        self._closed = True


@dataclasses.dataclass(slots=True)
class Outcome:
    """The outcome of a publish."""

    #: How many existing queues the message is routed to.
    reached: int = 0
    #: The errors of the queues that did not take everything, by name.
    refused: dict[str, ShmqError] = dataclasses.field(default_factory=dict)
    #: The deliveries to each queue.
    copies: list[QueueDelivery] = dataclasses.field(default_factory=list)
    #: The deliveries that found no room at the first attempt.
    full: list[QueueDelivery] = dataclasses.field(default_factory=list)

    def counts(self) -> tuple[int, int, int]:
        """How many queues were reached, and how many messages were delivered and were duplicates.

        Delivered messages are new; duplicates are messages that the queues knew already.
        """
        taken = duplicates = 0
        for delivery in self.copies:
            taken += delivery.taken - delivery.before
            duplicates += delivery.duplicates
        return self.reached, taken - duplicates, duplicates

    def published(self, exchange: str, mandatory: bool) -> api.Published:
        """The outcome as the publisher sees it. Raises Unroutable and PublishRefused."""
        return published(exchange, mandatory, *self.counts(), self.refused)


def published(
    exchange: str,
    mandatory: bool,
    reached: int,
    delivered: int,
    duplicates: int,
    refused: dict[str, ShmqError],
) -> api.Published:
    """The outcome as a publisher sees it. Raises Unroutable and PublishRefused."""
    if refused:
        name, first = next(iter(refused.items()))
        others = f", and {len(refused) - 1} more in `refused`" if len(refused) > 1 else ""
        raise PublishRefused(
            f"of {reached} queues that exchange {exchange!r} leads to, {len(refused)} refused; "
            f"the others have their copies. Queue {name!r}: {first}{others}",
            delivered,
            duplicates,
            refused,
        ) from first
    if mandatory and not reached:
        raise Unroutable(
            f"nothing was published to exchange {exchange!r}: what it is bound to leads to no "
            f"queue from there; bind one, give the exchange an alternate, or set mandatory=False"
        )
    return api.Published(delivered, duplicates)


class QueueDelivery:
    """The delivery to one queue: parcels in order, which the queue takes one after the other."""

    __slots__ = ("before", "confirms", "duplicates", "prepared_puts", "queue", "sequence", "taken")

    def __init__(
        self, queue: Any, prepared_puts: list[Any], confirms: bool, before: int = 0
    ) -> None:
        self.queue = queue
        self.prepared_puts = prepared_puts
        #: Whether they must be on disk.
        self.confirms = confirms
        #: How many messages the queue has taken; how many of them it had before, as duplicates.
        self.taken = self.before = before
        self.duplicates = 0
        #: The sequence number of the last one.
        self.sequence = 0

    @property
    def name(self) -> str:
        """The name of the target in errors."""
        return str(self.queue.name)

    @property
    def number(self) -> int:
        """The number to pass to `is_synced` later."""
        return self.sequence

    def want(self) -> None:
        """Ask the journal to write it soon."""
        self.queue.journal.request_sync(self.sequence)

    @property
    def waits(self) -> bool:
        """Whether a put to this queue waits when it is full."""
        return bool(self.queue.waits_when_full)

    def put(self, block: bool, until: float | None) -> None:
        """Put the remaining messages. Raises Full, QueueDeleted, NoSpace and the like."""
        queue, prepared_puts = self.queue, self.prepared_puts
        while self.taken < len(prepared_puts):
            left = None if until is None else max(0.0, until - time.monotonic())
            done = queue.try_put(prepared_puts[self.taken], block, left if block else None)
            self.taken += 1
            self.duplicates += done.duplicate
            self.sequence = done.sequence

    def confirm(self, until: float | None) -> None:
        """Wait until it is on disk. Raises NotConfirmed."""
        left = None if until is None else max(0.0, until - time.monotonic())
        if not self.queue.journal.wait_synced(self.sequence, left):
            raise not_confirmed(self.queue, self.sequence, self.taken)


class StreamCopy(QueueDelivery):
    """The delivery to one stream: records of one key, and so of one partition."""

    __slots__ = ("headers", "key", "partition")

    def __init__(
        self,
        stream: Any,
        prepared_puts: list[Any],
        confirms: bool,
        before: int,
        key: str,
        headers: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(stream, prepared_puts, confirms, before)
        self.key = key
        self.headers = headers
        self.partition = 0

    @property
    def name(self) -> str:
        """The name of the target in errors."""
        return f"stream/{self.queue.name}"

    @property
    def waits(self) -> bool:
        return bool(self.queue.options.overflow == "block")

    def put(self, block: bool, until: float | None) -> None:
        """Append the remaining records. Raises Full, StreamDeleted and the like."""
        while self.taken < len(self.prepared_puts):
            left = None if until is None else max(0.0, until - time.monotonic())
            value, codec = self.prepared_puts[self.taken]
            done = self.queue.append(
                value,
                key=self.key,
                headers=self.headers,
                codec=codec,
                block=block,
                timeout=left if block else None,
                confirm="memory",
            )
            self.taken += 1
            self.partition = done.partition
            self.sequence = done.offset + 1

    def confirm(self, until: float | None) -> None:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not self.queue.wait_written(self.queue.logs[self.partition], self.sequence, left):
            raise NotConfirmed(
                f"what was appended to partition {self.partition} of stream {self.queue.name!r} is "
                f"in memory, but not known to be on disk: "
                f"{self.queue.why_unconfirmed(self.partition)}",
                self.sequence - 1,
                self.taken,
            )

    @property
    def number(self) -> int:
        return self.sequence << 16 | self.partition

    def want(self) -> None:
        """Do nothing: a wait for a partition asks for the write itself."""


class Deliveries:
    """Messages to put into several queues: their encoded bodies and their properties."""

    def __init__(self, bodies: list[tuple[Any, str]], properties: Mapping[str, Any]) -> None:
        self._bodies = bodies
        self._properties = properties

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self._bodies)

    def delivery_for(self, queue: Any, confirm: Any, before: int = 0) -> QueueDelivery:
        """The delivery to a queue, which already has ``before`` of the messages.

        Raises what a put that can never succeed raises.
        """
        confirms = queue.confirms_on_disk(confirm)
        prepared_puts = [
            queue.wrap(body, codec=codec, encoded=True, **self._properties)
            for body, codec in self._bodies
        ]
        return QueueDelivery(queue, prepared_puts, confirms, min(before, len(prepared_puts)))

    def append_for(self, stream: Any, key: str, confirm: Any, before: int = 0) -> StreamCopy:
        """The delivery to a stream, which already has ``before`` of the records.

        Raises what an append that can never succeed raises.
        """
        most = stream.options.max_record_bytes
        for body, _ in self._bodies:
            if memoryview(body).nbytes > most:
                raise MessageTooLarge(
                    f"a body of {memoryview(body).nbytes} bytes can never fit into stream "
                    f"{stream.name!r}: max_record_bytes={most}"
                )
        records = [
            (codecs.decode_body(bytes(body), codec_number(codec), codec), codec)
            for body, codec in self._bodies
        ]
        confirms = stream.confirms_on_disk(confirm)
        headers = self._properties.get("headers")
        return StreamCopy(stream, records, confirms, min(before, len(records)), key, headers)


def no_target(kind: str, target: str, where: str, exchange: str) -> ShmqError:
    """The error for a binding to what is not there; ``where`` says where it was looked for."""
    return _MISSING.get(kind, ShmqError)(
        f"{kind} {target!r} does not exist {where} to bind to exchange {exchange!r}: "
        f"create it first"
    )


def many(bodies: Iterable[Any], properties: Mapping[str, Any]) -> list[Any]:
    """The bodies of a ``publish_many``. Raises TypeError."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping):
        raise TypeError(
            f"bodies={bodies!r:.60} is one body, not many: put it in a list, or use publish"
        )
    for name, row in PROPERTIES.items():
        if row.is_of_one and properties.get(name) is not None:
            raise TypeError(f"{name} is of one message: use publish")
    return list(bodies)


def is_synced(target: Any, number: int) -> bool:
    """Whether the queue or stream has the copy with that ``number`` on disk."""
    if hasattr(target, "logs"):
        return bool(target.logs[number & 0xFFFF].synced >= number >> 16)
    if target.journal.synced >= number:
        return True
    target.journal.request_sync(number)
    return False


def check_headers(headers: object) -> None:
    """Raise TypeError for invalid headers; None is valid."""
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(f"headers={headers!r:.80} must be a map, not {type(headers).__name__}")


def deliveries_of(
    bodies: Iterable[Any], properties: Mapping[str, Any], default: Default | None
) -> Deliveries:
    """The bodies with their properties, which are valid, encoded. Raises what encoding raises."""
    others = {name: value for name, value in properties.items() if name != "codec"}
    codec = properties.get("codec")
    return Deliveries([_encode_body(body, codec, default) for body in bodies], others)


def _encode_body(body: Any, codec: str | None, default: Default | None) -> tuple[Any, str]:
    buffer, number = codecs.encode_body(body, codec, default)
    return buffer, codec if codec is not None else codecs.CODECS[number]


def finish(outcome: Outcome, block: bool | None, until: float | None) -> None:
    """Wait for room in the full queues, and for the disk; ``until`` is a monotonic time."""
    for delivery in outcome.full:
        if delivery.waits or until is not None if block is None else block:
            del outcome.refused[delivery.name]
            _put(delivery, outcome, True, until)
    confirming = [
        delivery for delivery in outcome.copies if delivery.confirms and delivery.sequence
    ]
    for delivery in confirming:
        delivery.want()
    for delivery in confirming:
        try:
            delivery.confirm(until)
        except ShmqError as error:
            outcome.refused.setdefault(delivery.name, error)


def begin(copies: list[QueueDelivery], refused: dict[str, ShmqError]) -> Outcome:
    """Put the copies into the queues that have room, without waiting. Takes over ``refused``."""
    outcome = Outcome(len(copies) + len(refused), refused, copies)
    for delivery in copies:
        if not _put(delivery, outcome, False, None):
            outcome.full.append(delivery)
    return outcome


def _put(delivery: QueueDelivery, outcome: Outcome, block: bool, until: float | None) -> bool:
    """Whether this delivery is over: it was put or refused, or the queue is gone."""
    name = delivery.name
    try:
        delivery.put(block, until)
    except Full as error:
        outcome.refused[name] = _make_full(delivery, error)
        return False
    except (QueueDeleted, StreamDeleted):
        outcome.reached -= 1
    except ShmqError as error:
        outcome.refused[name] = error
    return True


def _make_full(delivery: QueueDelivery, error: Full) -> Full:
    if not delivery.taken:
        return error
    return Full(f"it took {delivery.taken} of {len(delivery.prepared_puts)} messages: {error}")
