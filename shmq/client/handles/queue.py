"""The queue of a network transport: the contract, once, above its port."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from shmq import api, errors
from shmq.api.names import check_move
from shmq.api.options import Confirm, QueueOptions, check_whole
from shmq.client.handles.batch import Batch, Packed, returning
from shmq.client.handles.consumer import AsyncConsumer, Bodies, Consumer
from shmq.client.handles.pipeline import Pipeline
from shmq.client.handles.put import (
    check_many,
    check_names,
    encode,
    encode_many,
    has_dedupe_id,
    is_durable,
    pack_records,
    waiting_put,
    waiting_puts,
    waits_for_room,
)
from shmq.client.ports.queue import QueuePort, Settlement
from shmq.client.ports.steps import Steps, arun, run
from shmq.client.shared.async_bodies import AsyncBodies
from shmq.client.shared.backoff import RoomBackoff
from shmq.client.shared.buffered_loan import QueueLoan
from shmq.client.shared.ready_event import ReadyEvent, descriptor_of
from shmq.model.codec.codecs import Default
from shmq.model.expression.parse import Where
from shmq.native import _clock as time
from shmq.native import _core

#: The most messages that one get_packed leases, and how many of them at once.
_MOST_PACKED: Final = 4096
_MOST_AT_ONCE: Final = 256


class QueueHandle(api.Queue):
    """A handle of a queue, for which a transport implements a `QueuePort`."""

    #: The iterator over bodies, where a transport has a faster one.
    BODIES: ClassVar[Any] = Bodies
    #: Of `connect`, which sets it.
    default: Default | None = None

    def __init__(self, port: QueuePort) -> None:
        self.port = port
        #: Of `fileno`; None: it was not called.
        self.ready_event: ReadyEvent | None = None
        self._consumers: weakref.WeakSet[api.Consumer | api.Bodies] = weakref.WeakSet()

    @property
    def name(self) -> str:
        return self.port.name

    @property
    def options(self) -> QueueOptions:
        return self.port.options

    @property
    def identity(self) -> int:
        found: int = self.port.describe("identity")
        return found

    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
        return self.port.closed

    # ---- put ----

    @property
    def _confirms(self) -> bool:
        return self.port.options.confirm == "disk"

    def _is_durable(self, confirm: str | None) -> bool:
        """Whether a put must be on disk. Raises what it raises for the ``confirm``."""
        if confirm is None:
            return self._confirms
        durable = is_durable(self, confirm)
        if confirm == "disk":
            self.port.check_durable()
        return durable

    def _put(
        self,
        meta: bytes | None,
        body: Any,
        block: bool | None,
        timeout: float | None,
        known: bool,
        durable: bool,
    ) -> api.Put:
        """Put an encoded message; ``known``: the application gave it a dedupe id."""
        waits = waits_for_room(self.options, block, timeout)
        return run(self.port.put((meta, body), waits, timeout, known, durable))

    def _encode(self, body: Any, properties: Mapping[str, Any]) -> tuple[bytes | None, Any, bool]:
        """Return the packed properties, the body as a buffer, and whether it has a dedupe id."""
        if not properties and type(body) is bytes:
            return None, body, False
        known = has_dedupe_id(self, properties)
        meta, body = encode(body, self.options.priorities, properties, default=self.default)
        return meta, body, known

    def put(
        self,
        body: api.Body,
        block: bool | None = None,
        timeout: float | None = None,
        *,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> api.Put:
        if timeout is not None:
            timeout = _core.check_timeout(timeout)
        durable = (confirm is not None or self._confirms) and self._is_durable(confirm)
        meta, body, known = self._encode(body, properties)
        return self._put(meta, body, block, timeout, known, durable)

    async def aput(
        self,
        body: api.Body,
        timeout: float | None = None,
        *,
        block: bool | None = None,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> api.Put:
        port = self.port
        if timeout is not None:
            timeout = _core.check_timeout(timeout)
        durable = (confirm is not None or self._confirms) and self._is_durable(confirm)
        meta, body, known = self._encode(body, properties)
        waits = waits_for_room(port.options, block, timeout)
        return await arun(port.put((meta, body), waits, timeout, known, durable))

    def put_many(
        self,
        bodies: Iterable[api.Body],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> int:
        check_names("put_many", properties)
        timeout = _core.check_timeout(timeout)
        durable = self._is_durable(confirm)
        check_many(bodies)
        items = self._encode_many(list(bodies), properties)
        waits = waits_for_room(self.options, block, timeout)
        return self.port.put_many(items, waits, timeout, durable)

    def _encode_many(self, bodies: list[Any], properties: Mapping[str, Any]) -> list[Any]:
        """Return the items of a `put_many`."""
        return encode_many(bodies, self.options.priorities, properties, default=self.default)

    def put_packed(
        self,
        data: api.Body,
        lengths: int | Iterable[int],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> api.Put:
        check_names("put_packed", properties)
        timeout = _core.check_timeout(timeout)
        durable = self._is_durable(confirm)
        packed = pack_records(data, lengths)
        properties["codec"] = "packed"
        meta, body = encode(packed, self.options.priorities, properties, encoded=True)
        known = has_dedupe_id(self, properties)
        return self._put(meta, body, block, timeout, known, durable)

    def loan(self, size: int, **properties: Any) -> api.Loan:
        # The space is memory of this process: room in the queue is checked now, and decided by
        # the commit.
        self.port.check_open()
        size = check_whole("size", size, 0, None)
        block, timeout = properties.pop("block", None), properties.pop("timeout", None)
        timeout = _core.check_timeout(timeout)
        durable = self._is_durable(properties.pop("confirm", None))
        known = has_dedupe_id(self, properties)
        meta, _ = encode(b"", self.options.priorities, properties, encoded=True)
        self.port.check_bytes(size, meta)
        self._await_room(waits_for_room(self.options, block, timeout), timeout)
        return QueueLoan(size, lambda body: self._put(meta, body, block, timeout, known, durable))

    def _await_room(self, waits: bool, timeout: float | None) -> None:
        """Return once a message may fit. Raises Full."""
        until = None if timeout is None else time.monotonic() + timeout
        backoff = RoomBackoff()
        while True:
            try:
                return self.port.check_room()
            except errors.Full:
                left = None if until is None else until - time.monotonic()
                if self.options.overflow == "drop-oldest":
                    return None
                if not waits or (left is not None and left <= 0):
                    raise
            with waiting_put(self.port.key):
                time.sleep(backoff.pause(left))

    def pipeline(self, window: int = 64, *, confirm: Confirm | None = None) -> api.Pipeline:
        durable = self._is_durable(confirm)
        return Pipeline(self, check_whole("window", window, 1), durable, self._is_durable)

    # ---- get ----

    def _taking(
        self, limit: int, block: bool, timeout: float | None, where: str | None
    ) -> Steps[list[Any]]:
        timeout = _core.check_timeout(timeout)
        port = self.port
        if where is not None:
            port.check_where(where)
        return port.take(min(limit, port.options.capacity), timeout if block else 0.0, where)

    def found_nothing(self) -> None:
        """A get has found nothing: the descriptor, if there is one, ends to be readable."""
        if self.ready_event is not None:
            self.ready_event.clear()

    def _first(
        self, messages: list[Any], block: bool, timeout: float | None, where: str | None
    ) -> api.Message:
        """Return the message, handed over. Raises Empty."""
        if messages:
            found: api.Message = self.port.hand_over(messages)[0]
            return found
        self.found_nothing()
        what = "no message" if where is None else "no message that `where` means"
        if block and timeout is not None:
            raise errors.Empty(f"{what} came to queue {self.name!r} within {timeout} s")
        raise errors.Empty(f"{what} is visible in queue {self.name!r}")

    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> api.Message:
        return self._first(run(self._taking(1, block, timeout, where)), block, timeout, where)

    async def aget(self, timeout: float | None = None, *, where: str | None = None) -> api.Message:
        return self._first(await arun(self._taking(1, True, timeout, where)), True, timeout, where)

    def _get_many(
        self, max: int, block: bool, timeout: float | None, where: str | None = None
    ) -> list[Any]:
        messages = run(self._taking(check_whole("max", max, 1, None), block, timeout, where))
        if not messages:
            self.found_nothing()
        return messages

    def get_many(
        self,
        max: int,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> list[api.Message]:
        return self.port.hand_over(self._get_many(max, block, timeout, where))

    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> api.Batch:
        messages = self._get_many(max, block, timeout)
        try:
            bodies = self.port.bodies_of(messages)
        except errors.ShmqError:
            self._return_batch(messages)
            raise
        return Batch(self, messages, bodies)

    def _return_batch(self, messages: list[Any]) -> None:
        """Return the batch, except the message whose body its codec cannot decode."""
        for message in messages:
            try:
                _ = message.body
            except errors.ShmqError as error:
                self._return([other for other in messages if other is not message])
                raise errors.ShmqError(
                    f"message {message.sequence} of queue {self.name!r} cannot be in a batch: "
                    f"{error}; reject its receipt {message.receipt}, or take it by get; the rest "
                    f"of the batch is in the queue again"
                ) from error

    def _return(self, messages: list[Any]) -> None:
        """Return messages that were not delivered, uncounted."""
        if messages:
            self.port.settle("return", self.port.receipts_of(messages), 0)

    def get_packed(
        self, max: int = 65536, timeout: float | None = None, *, block: bool = True
    ) -> api.Packed:
        port = self.port
        wanted = check_whole("max", max, 1, None)
        messages = self._get_many(1, block, timeout)
        records = port.records_in(messages)
        while (
            messages
            and records < wanted
            and len(messages) < _MOST_PACKED
            and not port.is_old(messages[0])
        ):
            # One packed batch may hold all records that are wanted, so few are leased at a time.
            alone = records == len(messages)
            most = min(wanted - records, _MOST_PACKED - len(messages)) if alone else 1
            more = self._get_many(min(most, _MOST_AT_ONCE), False, None)
            if not more:
                break
            messages += self._limit_records(more, wanted - records)
            records = port.records_in(messages)
        return Packed(self, port.current(messages))

    def _limit_records(self, messages: list[Any], most: int) -> list[Any]:
        """The first messages that hold ``most`` records; the others are returned."""
        records = kept = 0
        while kept < len(messages) and records < most:
            records += self.port.records_in([messages[kept]])
            kept += 1
        self._return(messages[kept:])
        return messages[:kept]

    # ---- iterators ----

    def _make_consumer(
        self, prefetch: int, timeout: float | None, block: bool, where: str | None
    ) -> Consumer:
        self.port.check_open()
        limit = min(check_whole("prefetch", prefetch, 1, 1 << 20), self.options.capacity)
        timeout = _core.check_timeout(timeout)
        if where is not None:
            self.port.check_where(where)
        consumer: Consumer = self.port.prefetch(self, limit, timeout if block else 0.0, where)
        self._consumers.add(consumer)
        return consumer

    def consume(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Consumer:
        return self._make_consumer(prefetch, timeout, block, where)

    def bodies(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Bodies:
        consumer = self.consume(prefetch, timeout, block=block, where=where)
        bodies: api.Bodies = type(self).BODIES(consumer)
        self._consumers.add(bodies)
        return bodies

    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncConsumer:
        return AsyncConsumer(self._make_consumer(prefetch, timeout, True, where), prefetch)

    def abodies(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncBodies:
        return AsyncBodies(self.aconsume(prefetch, timeout, where=where))

    def fileno(self) -> int:
        self.port.check_open()
        return descriptor_of(self)

    # ---- settle ----

    def ack_many(self, messages: Iterable[api.Message | int]) -> list[int]:
        given = list(messages)
        receipts = list(map(self.port.receipt_of, given))
        self.port.check_open()
        refused = self._settle_given("ack", receipts, None) if receipts else []
        self.port.have_acked(given, set(refused))
        return refused

    def ack(self, receipt: int) -> None:
        self._settle("ack", receipt, None)

    def nack(
        self,
        receipt: int,
        delay: float | None = None,
        *,
        counted: bool = True,
        error: BaseException | api.Failure | str | None = None,
    ) -> None:
        kind, ms = returning(delay, counted)
        self._settle(kind, receipt, ms, _core.pack_error(error, counted))

    def reject(self, receipt: int, reason: BaseException | api.Failure | str | None = None) -> None:
        self._settle("reject", receipt, None, _core.pack_error(reason))

    def extend(self, receipt: int, seconds: float) -> None:
        self._settle("extend", receipt, _core.milliseconds("seconds", seconds))

    def _settle(
        self, kind: Settlement, receipt: int, ms: int | None, error: bytes | None = None
    ) -> None:
        number = self.port.receipt_of(receipt)
        self.port.check_open()
        if self._settle_given(kind, [number], ms, error):
            raise self._make_stale_error(number)

    def _settle_given(
        self, kind: Settlement, given: list[int], ms: int | None, error: bytes | None = None
    ) -> list[int]:
        """Settle receipts of the application, which may be any numbers."""
        return self.port.settle(kind, given, ms, error)

    def _make_stale_error(self, receipt: int) -> errors.LeaseExpired:
        return errors.LeaseExpired(
            f"receipt {receipt} of queue {self.name!r} has expired: its lease ended, "
            f"or the message was settled; nothing was changed"
        )

    # ---- what the queue has ----

    def peek(self, limit: int = 10, *, where: str | None = None) -> list[api.Message]:
        limit = min(check_whole("limit", limit, 1, None), self.options.capacity)
        return self.port.peek(limit, None if where is None else Where(where))

    def purge(self) -> int:
        return self.port.purge()

    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        most = None if limit is None else check_whole("limit", limit, 1, None)
        return self.port.redrive(most, None if where is None else Where(where))

    def move_to(self, target: str, limit: int | None = None, *, where: str | None = None) -> int:
        return run(self._moving(target, limit, where))

    async def amove_to(
        self, target: str, limit: int | None = None, *, where: str | None = None
    ) -> int:
        return await arun(self._moving(target, limit, where))

    def _moving(self, target: str, limit: int | None, where: str | None) -> Steps[int]:
        check_move(self.name, target)
        most = None if limit is None else check_whole("limit", limit, 1, None)
        return self.port.move_to(target, most, None if where is None else Where(where))

    def stats(self) -> api.QueueStats:
        # A put to a server waits by retrying.
        found = self._stats()
        return dataclasses.replace(
            found, waiting_put=found.waiting_put + waiting_puts(self.port.key)
        )

    def _stats(self) -> api.QueueStats:
        found: api.QueueStats = self.port.describe("stats")
        return found

    def attachments(self) -> list[api.Attachment]:
        found: list[api.Attachment] = self.port.describe("attachments")
        return found

    def leases(self, limit: int = 100, *, after: int = 0) -> list[api.Lease]:
        limit = min(check_whole("limit", limit, 1, None), self.options.capacity)
        return self.port.leases(limit, check_whole("after", after, 0, (1 << 64) - 1))

    def qsize(self) -> int:
        return self._stats().depth

    def has_message(self) -> bool:
        """Whether a message is visible: the queues of this host need no statistics for that."""
        return not self.empty()

    def look_for_dead(self) -> None:
        """Nothing: the server does."""

    def full(self) -> bool:
        try:
            self.port.check_room()
        except errors.Full:
            return True
        return False

    # ---- the end ----

    def close(self) -> None:
        if self.closed:
            return
        for consumer in list(self._consumers):
            consumer.close()  # with the acknowledgements that it has collected
        if self.ready_event is not None:
            self.ready_event.close()
        self.port.close()

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "name", self.name
        yield "url", self.port.url
        yield "closed", self.closed

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name!r} of {self.port.url}{state}>"
