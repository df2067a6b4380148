"""The broker of this host: creates, finds and deletes the queues and streams of a namespace."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from shmq import api
from shmq.api.names import check_name, is_lock_queue, is_reply_name, reply_name
from shmq.client.handles.broker import BrokerHandle
from shmq.client.local.queue import LocalQueue, attach, remove_if_over
from shmq.client.local.queues import (
    EXIT_PRIORITY,
    QueueCollection,
    is_named,
    remove_all_owned,
    tidy_schemas,
)
from shmq.client.local.temporary_queue import remove_dropped, remove_owned
from shmq.client.local.waiting import wait_set
from shmq.client.ports.broker import CollectionPort, Kind, make_neither_error
from shmq.client.shared import durability, name_texts
from shmq.client.shared.pickling import reduce
from shmq.client.shared.rpc_client import REPLY_OPTIONS
from shmq.client.transaction.recover import attach_by, look, settle_all
from shmq.disk.storage.paths import SCHEMAS
from shmq.errors import InvalidName, QueueExists, SegmentError, ShmqError, no_descriptor
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.wakeups import sweep_wakeups
from shmq.lazy_imports import late_imports
from shmq.model.routing.book import Book
from shmq.model.schema.book import Schemas
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.client.local.exchange import LocalExchange
    from shmq.client.local.stream import LocalStream
    from shmq.client.local.table import LocalTable
    from shmq.client.local.transaction import LocalTransaction

    _Handle = BrokerHandle[LocalQueue, LocalStream, LocalExchange, LocalTable]
else:
    _Handle = BrokerHandle

log = logging.getLogger("shmq")


def _attach(kind: str, namespace: Namespace, name: str) -> LocalQueue | LocalStream:
    if kind == "queue":
        return attach(namespace, name)
    with late_imports:
        from shmq.client.local import stream  # noqa: PLC0415

    return stream.attach(namespace, name)


class LocalBroker(_Handle):
    """The queues, streams, exchanges and tables of one namespace on this host."""

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__()
        self._namespace = Namespace.chosen(namespace)
        self._found: dict[tuple[str, str], LocalQueue | LocalStream] = {}
        #: The exclusive queues that it has made: the id by the name.
        self._owned: dict[str, int] = {}

    @property
    def namespace(self) -> str:
        return self._namespace.name

    # ---- what has a name ----

    def find_unrecovered(self) -> list[str]:
        """Why each queue and stream that is on disk is not there; for the command line."""
        return durability.find_unrecovered(self._namespace)

    def collection(self, kind: Kind) -> CollectionPort:
        # Most processes only use queues: everything else is loaded on demand.
        namespace = self._namespace
        if kind == "stream":
            with late_imports:
                from shmq.client.local.stream import StreamCollection  # noqa: PLC0415

            return StreamCollection(namespace)
        if kind == "exchange":
            with late_imports:
                from shmq.client.local.exchange import ExchangeCollection  # noqa: PLC0415

            return ExchangeCollection(namespace)
        if kind == "table":
            with late_imports:
                from shmq.client.local.table import TableCollection  # noqa: PLC0415 - loads SQLite

            return TableCollection(namespace)
        return QueueCollection(namespace, self._owned)

    def _list(self, kind: Kind) -> list[Any]:
        self._check_open()
        if kind == "stream" and not self._namespace.stream_names():
            durability.bring_back_all(self._namespace)
            if not self._namespace.stream_names():
                return []  # without the code of streams, which takes long to load
        if kind == "exchange" and not self._namespace.exchanges_path.exists():
            with contextlib.suppress(ShmqError, OSError):
                durability.bring_back_exchanges(self._namespace)
            if not self._namespace.exchanges_path.exists():
                return []
        return super()._list(kind)

    def _delete(self, kind: Kind, name: str) -> None:
        super()._delete(kind, name)
        self._retire()

    def remove_queue(self, name: str, with_dead_letters: bool) -> None:
        """`delete_queue`, with or without the empty dead-letter queue that was created for it."""
        self._check_open()
        queues: Any = self.collection("queue")
        queues.remove(name, with_dead_letters)
        self._retire()

    # ---- schemas ----

    def _require_named(self, name: str) -> None:
        """Raise NoSuchQueue if there is none; one that is only on disk is recovered."""
        namespace = self._namespace
        if not is_named(namespace, name):
            durability.bring_back(namespace, name, "queue", "stream")
        if not is_named(namespace, name):
            raise make_neither_error(name, f"in namespace {self.namespace!r}")
        durability.bring_back_schemas(self._namespace)

    def _forget_schemas(self) -> None:
        """Remove the file of schemas, in any state, if the namespace has no queue or stream."""
        namespace = self._namespace
        if namespace.schemas_path.exists():
            with namespace.locked(), contextlib.suppress(OSError):
                if not namespace.has_names() and namespace.drop_stored(SCHEMAS):
                    namespace.schemas_path.unlink(missing_ok=True)

    def add_schema(
        self, name: str, schema: dict[str, Any], rule: str | None, *, only_check: bool = False
    ) -> int:
        self._require_named(name)
        if only_check:
            Schemas(self._namespace).check(name, schema, rule)
            return 0
        with durability.on_disk(self._namespace), self._namespace.locked():
            if not is_named(self._namespace, name):
                raise make_neither_error(name, f"in namespace {self.namespace!r}")
            return Schemas(self._namespace).set(name, schema, rule)

    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        self._require_named(name)
        return Schemas(self._namespace).of(name)

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

        util.Finalize(queue, remove_dropped, args=own, exitpriority=EXIT_PRIORITY)
        return queue

    def _remove_reply_queue(self, queue: api.Queue) -> None:
        assert isinstance(queue, LocalQueue)
        queue_id = queue.segment.queue_id
        queue.close()
        self.delete_own_queue(queue.name, queue_id)

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of that name, in any state."""
        self._check_open()
        return self._namespace.has("queue", check_name(name))

    def has_name(self, kind: Literal["queue", "stream"], name: str) -> bool:
        """Whether a list has that name; one that is only on disk is recovered."""
        self._check_open()
        if is_lock_queue(check_name(name, kind)):
            return False
        with contextlib.suppress(ShmqError, OSError):
            durability.bring_back(self._namespace, name, kind)
        return self._namespace.has(kind, name)

    def summary(self, name: str) -> api.QueueSummary | None:
        """The queue's entry of the list; None if no such queue exists."""
        return QueueCollection(self._namespace, self._owned).summary(name)

    def has_stream(self, name: str) -> bool:
        """Whether there is a stream of that name, in any state."""
        return self._namespace.has("stream", check_name(name, "stream"))

    # ---- transactions ----

    def transaction(self, *, timeout: float | None = 0.0) -> LocalTransaction:
        self._check_open()
        timeout = _core.check_timeout(timeout)
        look(self._namespace)
        with late_imports:
            from shmq.client.local.transaction import LocalTransaction  # noqa: PLC0415

        return LocalTransaction(self._namespace, self._find, timeout, self.default)

    def _find(self, kind: str, name: str) -> LocalQueue | LocalStream:
        """The handle that all transactions share."""
        found = self._found.get((kind, name))
        if found is not None and not found.closed and not found.is_gone:
            return found
        found = self.queue(name) if kind == "queue" else self.stream(name)
        self._found[kind, name] = found
        return found

    def disconnect(self) -> None:
        remove_all_owned(self._namespace.name, self._owned)
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
                tidy_schemas(self._namespace)
        if self._namespace.tables_path.exists():
            with late_imports:
                from shmq.model.table import files as tables  # noqa: PLC0415 - it loads SQLite

            with contextlib.suppress(SegmentError):  # one who opens a table gets the error
                tables.tidy(self._namespace)
        named = self._namespace.has_names()
        if not named:
            self._forget_schemas()
            self._forget_texts()
            wait_set.rest(self._namespace)
            settle_all(self._namespace)
            sweep_wakeups(self._namespace.name, self._namespace.processes.is_alive)
        Book.of(self._namespace).tidy()
        if not named:
            self._namespace.retire()

    def _forget_texts(self) -> None:
        """Delete the texts of hashed names, if the namespace has no queue or stream."""
        if self._namespace.tables_path.exists():
            with late_imports:
                from shmq.model.table import files as tables  # noqa: PLC0415 - it loads SQLite

            with self._namespace.locked(), contextlib.suppress(ShmqError):
                if not self._namespace.has_names():
                    tables.remove(self._namespace, name_texts.TABLE)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, LocalBroker, self._namespace.name)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "namespace", self._namespace.name

    def __repr__(self) -> str:
        return f"<LocalBroker of namespace {self._namespace.name!r}>"


attach_by(_attach)
