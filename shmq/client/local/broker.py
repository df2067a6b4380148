"""The broker of this host: creates, finds and deletes the queues and streams of a namespace."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from shmq import api
from shmq.api.names import check_name, chosen_namespace, is_reply_name, reply_name, staging_target
from shmq.api.options import QueueOptions
from shmq.client.handles.broker import BrokerHandle
from shmq.client.local.queue import LocalQueue, attach, remove_if_over
from shmq.client.local.queue_segments import (
    ensure_dead_letters,
    find_segment,
    remove_queue,
    remove_staged,
)
from shmq.client.local.temporary_queue import check_owner, remove_dropped, remove_owned
from shmq.client.local.waiting import wait_thread
from shmq.client.shared import durability, name_texts
from shmq.client.shared.rpc_client import REPLY_OPTIONS
from shmq.client.transaction.recover import attach_by, look, settle_all
from shmq.disk.storage.paths import SCHEMAS
from shmq.errors import (
    FileError,
    InvalidName,
    NoSuchQueue,
    QueueDeleted,
    QueueExists,
    SegmentError,
    ShmqError,
    no_descriptor,
)
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import sweep_wakeups
from shmq.lazy_imports import late_imports
from shmq.model.routing.book import Book
from shmq.model.schema.book import Schemas
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.api.stream_options import StreamOptions
    from shmq.api.table import TableDurability
    from shmq.client.local.exchange import Exchanges, LocalExchange
    from shmq.client.local.stream import LocalStream, LocalStreams
    from shmq.client.local.table import LocalTable, Tables
    from shmq.client.local.transaction import LocalTransaction

log = logging.getLogger("shmq")

#: When a process that exits deletes its exclusive queues: after `at_the_end` has ended the thread
#: that waits for them, since a daemon thread that finds one deleted sleeps from then on.
_EXIT_PRIORITY: Final = 0


def _no_schemas(name: str, namespace: str) -> NoSuchQueue:
    return NoSuchQueue(
        f"neither a queue nor a stream {name!r} exists in namespace {namespace!r}: create it first"
    )


def _remove_all_owned(namespace: str, owned: dict[str, int]) -> None:
    while owned:
        remove_owned(Namespace.of(namespace), *owned.popitem())


def _attach(kind: str, namespace: Namespace, name: str) -> LocalQueue | LocalStream:
    if kind == "queue":
        return attach(namespace, name)
    with late_imports:
        from shmq.client.local import stream  # noqa: PLC0415

    return stream.attach(namespace, name)


class LocalBroker(BrokerHandle["LocalQueue", "LocalStream", "LocalExchange", "LocalTable"]):
    """The queues, streams, exchanges and tables of one namespace on this host."""

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__()
        self._namespace = Namespace.of(chosen_namespace(namespace))
        self._found: dict[tuple[str, str], LocalQueue | LocalStream] = {}
        #: The exclusive queues that it has made: the id by the name.
        self._owned: dict[str, int] = {}

    @property
    def namespace(self) -> str:
        return self._namespace.name

    def make_queue(
        self, name: str, wanted: QueueOptions, given: Mapping[str, Any], exact: bool
    ) -> LocalQueue:
        del given
        self._bring_back(name, wanted.dead_letter)
        with self._namespace.locked():
            segment = self._find_segment(name)
            if segment is None:
                made = self._make(name, wanted)
            else:
                differences = wanted.differences(QueueOptions(**segment.options)) if exact else {}
                if differences:
                    raise QueueExists.of(name, differences)
                made = self._renewed(name, segment)
        return self._await_writer(made)

    def _find_segment(self, name: str) -> _core.Segment | None:
        """The queue's segment; None: there is none, or it was past its end.

        Raises Forbidden if it is exclusive to another process. Needs the registry lock.
        """
        segment = find_segment(self._namespace, name)
        if segment is None or not segment.is_temporary:
            return segment
        if remove_if_over(self._namespace, name):
            return None
        check_owner(self._namespace, name, segment)
        return segment

    def _renewed(self, name: str, segment: _core.Segment) -> LocalQueue:
        """Attach to a queue that is declared again."""
        queue = LocalQueue(self._namespace, name, segment)
        if queue.is_temporary:
            queue.renew()
        return queue

    def _bring_back(self, name: str, dead_letter: str | None = None) -> None:
        """Recover a queue that is only on disk. Raises ShmqError if that is impossible.

        The same holds for its ``dead_letter`` queue, which would be created with it.
        """
        if not self.has_queue(name):
            durability.bring_back(self._namespace, "queue", name)
            if dead_letter is not None and not self.has_queue(name):
                self._bring_back(dead_letter)

    def _await_writer(self, queue: LocalQueue) -> LocalQueue:
        """The queue, once a writer keeps it if it is durable; warns if no writer exists."""
        if queue.segment.options["durability"] != "memory":
            durability.warn_unkept(self._namespace, "queue", queue.name)
        return queue

    def _make(self, name: str, options: QueueOptions) -> LocalQueue:
        """Create the dead-letter queue first: a queue is never without its own."""
        self._tidy_schemas()
        names = (name, options.dead_letter)
        missing = [new for new in names if new is not None and not self.has_queue(new)]
        try:
            if options.dead_letter is not None:
                ensure_dead_letters(self._namespace, name, options)
            segment = self._namespace.make_segment(name, options)
            if options.exclusive:
                self._own(name, segment)
            return LocalQueue(self._namespace, name, segment)
        except BaseException:
            for made in missing:
                with contextlib.suppress(NoSuchQueue):
                    remove_queue(self._namespace, made)
            self._namespace.forget_names()
            raise

    def _own(self, name: str, segment: _core.Segment) -> None:
        """Own an exclusive queue, until the broker is closed or this process ends."""
        self._namespace.roles.claim(segment.queue_id)
        if not self._owned:
            with late_imports:
                from multiprocessing import util  # noqa: PLC0415 - heavy, and rarely needed

            own = (self._namespace.name, self._owned)
            util.Finalize(None, _remove_all_owned, args=own, exitpriority=_EXIT_PRIORITY)
        self._owned[name] = segment.queue_id

    def open_queue(self, name: str, to_put: bool) -> LocalQueue:
        self._bring_back(name)
        try:
            queue = attach(self._namespace, name)
        except QueueDeleted:
            raise self._has_ended(name) from None
        if queue.is_temporary:
            try:
                if remove_if_over(self._namespace, name):
                    raise self._has_ended(name)
                if not to_put:
                    check_owner(self._namespace, name, queue.segment)
            except BaseException:
                queue.close()
                raise
        return self._await_writer(queue)

    def _has_ended(self, name: str) -> NoSuchQueue:
        return NoSuchQueue(
            f"queue {name!r} of namespace {self._namespace.name!r} has ended: create it again"
        )

    def remove_queue(self, name: str) -> None:
        target = staging_target(name)
        if target is not None:
            if not self.has_queue(name) and not self.has_queue(target):
                return  # it was removed with its target
            self._settle_rows(name, target)
        with contextlib.suppress(FileError):  # then its files are deleted as they are
            self._bring_back(name)
        with self._namespace.locked():
            remove_staged(self._namespace, name)
            remove_queue(self._namespace, name)
        self._retire()

    # ---- schemas ----

    def _is_named(self, name: str) -> bool:
        """Whether there is a queue or a stream of that name."""
        return self._namespace.has("queue", name) or self._namespace.has("stream", name)

    def _need_named(self, name: str) -> None:
        """Raise NoSuchQueue if there is none; one that is only on disk is recovered."""
        if not self._is_named(name):
            durability.bring_back(self._namespace, "queue", name)
            durability.bring_back(self._namespace, "stream", name)
        if not self._is_named(name):
            raise _no_schemas(name, self._namespace.name)
        durability.bring_back_schemas(self._namespace)

    def _forget_schemas(self) -> None:
        """Remove the file of schemas, in any state, if the namespace has no queue or stream."""
        namespace = self._namespace
        if namespace.schemas_path.exists():
            with namespace.locked(), contextlib.suppress(OSError):
                if not namespace.has_names() and namespace.drop_stored(SCHEMAS):
                    namespace.schemas_path.unlink(missing_ok=True)

    def _tidy_schemas(self) -> None:
        """Remove the schemas of deleted queues and streams. Needs the registry lock."""
        with contextlib.suppress(SegmentError, OSError):  # a reader of the schemas gets the error
            Schemas(self._namespace).tidy(self._is_named)

    def add_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        self._need_named(name)
        with durability.on_disk(self._namespace), self._namespace.locked():
            if not self._is_named(name):
                raise _no_schemas(name, self._namespace.name)
            return Schemas(self._namespace).set(name, schema, rule)

    def test_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        self._need_named(name)
        Schemas(self._namespace).check(name, schema, rule)

    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        self._need_named(name)
        return Schemas(self._namespace).of(name)

    def _settle_rows(self, name: str, target: str) -> None:
        """Settle the moves from a staging queue before it is deleted."""
        with contextlib.suppress(ShmqError), contextlib.ExitStack() as stack:
            queue = stack.enter_context(attach(self._namespace, name))
            stack.enter_context(attach(self._namespace, target)).settle_rows(queue)

    def create_own_queue(self, name: str, **options: Any) -> LocalQueue:
        """Create a client's reply queue: a new exclusive queue with a name of its kind.

        The reply queues of dead clients are removed, too. Raises :class:`~shmq.InvalidName` for a
        name that is not a reply queue's, and what `create_queue` raises; also if a queue with the
        same options exists.
        """
        if not is_reply_name(check_name(name)):
            raise InvalidName(
                f"{name!r} cannot be a client's own queue: its name is reply. and 16 "
                f"hexadecimal digits"
            )
        with self._namespace.locked():
            for reply_queue in self._namespace.noted_queues("reply."):
                with contextlib.suppress(ShmqError, OSError):
                    remove_if_over(self._namespace, reply_queue)
            if self.has_queue(name):
                raise QueueExists(f"queue {name!r} exists: take another name")
            return self.create_queue(name, **{**options, "exclusive": True})

    def delete_own_queue(self, name: str, queue_id: int) -> None:
        """Delete an exclusive queue that this broker has made, if it still exists."""
        if self._owned.get(name) == queue_id:
            del self._owned[name]
        remove_owned(self._namespace, name, queue_id)

    def _make_reply_queue(self) -> api.Queue:
        queue = self.create_own_queue(reply_name(), **REPLY_OPTIONS)
        own = (self._namespace.name, queue.name, queue.segment.queue_id)
        # An ended loop, and a process that ends without closing, leave nothing behind.
        with late_imports:
            from multiprocessing import util  # noqa: PLC0415 - heavy, and rarely needed

        util.Finalize(queue, remove_dropped, args=own, exitpriority=_EXIT_PRIORITY)
        return queue

    def _remove_reply_queue(self, queue: api.Queue) -> None:
        assert isinstance(queue, LocalQueue)
        queue_id = queue.segment.queue_id
        queue.close()
        self.delete_own_queue(queue.name, queue_id)

    def summarize_queues(self) -> list[api.QueueSummary]:
        durability.bring_back_all(self._namespace)
        summaries = (self.summary(name) for name in self._namespace.queue_names())
        return [summary for summary in summaries if summary is not None]

    def find_queue_names(self) -> list[str]:
        return self._namespace.queue_names()

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of that name, in any state."""
        self._check_open()
        return self._namespace.path_of(check_name(name)).exists()

    def summary(self, name: str) -> api.QueueSummary | None:
        """The queue's entry of the list; None if no such queue exists."""
        try:
            with attach(self._namespace, name) as queue:
                if queue.is_temporary and remove_if_over(self._namespace, name):
                    return None
                n = queue.inspection.numbers()
        except (NoSuchQueue, QueueDeleted):
            return None
        except (ShmqError, OSError) as error:
            return api.QueueSummary(
                name=name, depth=0, delayed=0, in_flight=0, capacity=0, problem=str(error)
            )
        return api.QueueSummary(
            name=name,
            depth=n["depth"],
            delayed=n["delayed"],
            in_flight=n["in_flight"],
            capacity=n["capacity"],
        )

    # ---- streams ----

    @property
    def _streams(self) -> LocalStreams:
        with late_imports:
            from shmq.client.local.stream import LocalStreams  # noqa: PLC0415

        return LocalStreams(self._namespace)

    def make_stream(
        self, name: str, wanted: StreamOptions, given: Mapping[str, Any], exact: bool
    ) -> LocalStream:
        del given
        return self._kept_stream(self._streams.make(name, wanted, exact))

    def _kept_stream(self, stream: LocalStream) -> LocalStream:
        """The stream, once a writer keeps it if it is durable; warns if no writer exists."""
        if stream.control.options["durability"] != "memory":
            durability.warn_unkept(self._namespace, "stream", stream.name)
        return stream

    def open_stream(self, name: str) -> LocalStream:
        return self._kept_stream(self._streams.attached(name))

    def remove_stream(self, name: str) -> None:
        self._streams.delete(name)
        self._retire()

    def summarize_streams(self) -> list[api.StreamSummary]:
        durability.bring_back_all(self._namespace)
        return self._streams.summaries() if self.stream_names() else []

    def stream_names(self) -> list[str]:
        """The names of the streams, sorted."""
        self._check_open()
        return self._namespace.stream_names()

    def has_stream(self, name: str) -> bool:
        """Whether there is a stream of that name, in any state."""
        return self._namespace.stream_path(check_name(name, "stream")).exists()

    # ---- transactions ----

    def transaction(self, *, timeout: float | None = 0.0) -> LocalTransaction:
        self._check_open()
        _core.check_timeout(timeout)
        look(self._namespace)
        with late_imports:
            from shmq.client.local.transaction import LocalTransaction  # noqa: PLC0415

        return LocalTransaction(self._namespace, self._find, timeout)

    def _find(self, kind: str, name: str) -> LocalQueue | LocalStream:
        """The handle that all transactions share."""
        found = self._found.get((kind, name))
        if found is not None and not found.closed and not found.is_gone:
            return found
        found = self.queue(name) if kind == "queue" else self.stream(name)
        self._found[kind, name] = found
        return found

    # ---- exchanges ----

    @property
    def _exchanges(self) -> Exchanges:
        with late_imports:
            from shmq.client.local.exchange import Exchanges  # noqa: PLC0415

        return Exchanges(self._namespace)

    def make_exchange(
        self, name: str, kind: api.ExchangeKind, alternate: str | None, exact: bool
    ) -> LocalExchange:
        return self._exchanges.make(name, kind, alternate, exact)

    def open_exchange(self, name: str) -> LocalExchange:
        return self._exchanges.open(name)

    def remove_exchange(self, name: str) -> None:
        self._exchanges.delete(name)
        self._retire()

    def summarize_exchanges(self) -> list[api.ExchangeSummary]:
        return self._exchanges.summaries()

    # ---- tables ----

    @property
    def _tables(self) -> Tables:
        with late_imports:
            from shmq.client.local.table import Tables  # noqa: PLC0415 - it loads SQLite

        return Tables(self._namespace)

    def make_table(
        self, name: str, durability: TableDurability, max_bytes: int | None
    ) -> LocalTable:
        return self._tables.make(name, durability, max_bytes)

    def open_table(self, name: str) -> LocalTable:
        return self._tables.open(name)

    def remove_table(self, name: str) -> None:
        self._tables.delete(name)
        self._retire()

    def find_table_names(self) -> list[str]:
        return self._tables.names()

    def disconnect(self) -> None:
        _remove_all_owned(self._namespace.name, self._owned)
        try:
            self._retire()
        except OSError as error:
            if no_descriptor(error) is error:
                raise
            log.warning("namespace %s is not tidied up: %s", self._namespace.name, error)
        finally:
            # Last of all: if the file were truncated, reading it would kill this process.
            Book.of(self._namespace).release()

    def _retire(self) -> None:
        """Remove the remaining files of a namespace without queues and streams."""
        if self._namespace.schemas_path.exists():
            with self._namespace.locked():
                self._tidy_schemas()
        if self._namespace.tables_path.exists():
            with contextlib.suppress(SegmentError):  # one who opens a table gets the error
                self._tables.tidy()
        if not self._namespace.has_names():
            self._forget_schemas()
            self._forget_texts()
            wait_thread.rest(self._namespace)
            settle_all(self._namespace)
            sweep_wakeups(self._namespace.name, self._namespace.processes.is_alive)
        Book.of(self._namespace).tidy()
        self._namespace.retire()

    def _forget_texts(self) -> None:
        """Delete the texts of hashed names, if the namespace has no queue or stream."""
        if self._namespace.tables_path.exists():
            with self._namespace.locked(), contextlib.suppress(ShmqError):
                if not self._namespace.has_names():
                    self._tables.delete(name_texts.TABLE)

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalBroker, (self._namespace.name,)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "namespace", self._namespace.name

    def __repr__(self) -> str:
        return f"<LocalBroker of namespace {self._namespace.name!r}>"


attach_by(_attach)
