"""The exchanges of this host, which put copies into queues directly, without a server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, Literal

from shmq import api
from shmq.client.handles.exchange import (
    Deliveries,
    ExchangeHandle,
    Outcome,
    QueueDelivery,
    begin,
    deliveries_of,
    finish,
    no_target,
)
from shmq.client.local.queue import LocalQueue, attach, remove_if_over
from shmq.client.ports.broker import CollectionPort
from shmq.client.shared import durability
from shmq.client.shared.pickling import reduce
from shmq.errors import NoSuchExchange, NoSuchQueue, NoSuchStream, ShmqError
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import late_imports
from shmq.model.routing.book import Book
from shmq.model.routing.table import Operation, Route, Table, check_exchange

#: The prefix of a stream's name where a queue's could be meant.
_STREAM: Final = "stream/"


class Targets:
    """The queues that one exchange handle publishes into, kept attached."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._open: dict[str, Any] = {}
        self._lock = new_lock()
        self._changes = 0

    def of(self, name: str) -> Any:
        """The queue of that name. Raises NoSuchQueue, SegmentError.

        One that is past its end is deleted, so nothing is put where no consumer will come.
        """
        found = self._open.get(name)
        if found is not None and not self._is_over(found):
            return found
        queue = _attach(self._namespace, name)
        if self._is_over(queue):
            queue.close()
            raise NoSuchQueue(f"queue {name!r} has ended")
        with self._lock:
            self._open[name] = queue
        if found is not None:
            found.close()
        return queue

    def _is_over(self, target: Any) -> bool:
        """Whether the target was deleted; a temporary queue past its end is deleted first."""
        if isinstance(target, LocalQueue) and target.is_temporary:
            remove_if_over(self._namespace, target.name)
        return _is_deleted(target)

    def note(self, changes: int) -> None:
        """Detach from deleted queues, if the table has changed since."""
        if changes == self._changes:
            return
        self._changes = changes
        with self._lock:
            gone = [name for name, target in self._open.items() if _is_deleted(target)]
            queues = [self._open.pop(name) for name in gone]
        for queue in queues:
            queue.close()

    def close(self) -> None:
        """Detach from all queues."""
        with self._lock:
            queues, self._open = list(self._open.values()), {}
        for queue in queues:
            queue.close()


class ExchangeCollection(CollectionPort):
    """The exchanges of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._book = Book.of(namespace)

    def make(
        self, name: str, wanted: Mapping[str, Any], given: Mapping[str, Any], exact: bool
    ) -> LocalExchange:
        del given
        kind, alternate = wanted["kind"], wanted["alternate"]
        operation = check_exchange(name, kind, alternate)

        def is_new(table: Table) -> bool:
            if exact:
                table.check_kind(name, kind, alternate)
            return not table.has(name)

        with durability.on_disk(self._namespace):
            self._book.change(operation, is_new)
        return self.open(name)

    def open(self, name: str, to_put: bool = False) -> LocalExchange:
        del to_put
        durability.bring_back_exchanges(self._namespace)
        with self._book.table() as table:
            summary = table.summary(name)
        return LocalExchange(self._namespace, summary)

    def delete(self, name: str) -> None:
        with durability.on_disk(self._namespace):
            self._book.change(["delete", name], lambda table: bool(table.summary(name)))

    def summaries(self) -> list[api.ExchangeSummary]:
        # Those that are only on disk and cannot be recovered are not among them.
        with contextlib.suppress(ShmqError, OSError):
            durability.bring_back_exchanges(self._namespace)
        return self._book.summaries()


class LocalExchange(ExchangeHandle):
    """An exchange of this host. Threads may share it; a pickled one attaches again."""

    def __init__(self, namespace: Namespace, summary: api.ExchangeSummary) -> None:
        super().__init__(summary.name, summary.kind, summary.alternate)
        self._namespace = namespace
        self._book = Book.of(namespace)
        self._targets = Targets(namespace)

    # ---- bindings ----

    def change_binding(
        self, action: Literal["bind", "unbind"], binding: Operation, given: Mapping[str, Any]
    ) -> bool:
        def is_new(table: Table) -> bool:
            if action == "bind":
                self._check_target(table, given["kind"], given["target"])
            return self._is_bound(table, binding) != (action == "bind")

        with durability.on_disk(self._namespace):
            return self._book.change([action, self.name, *binding], is_new)

    def _check_target(self, table: Table, kind: str, target: str) -> None:
        if kind == "exchange":
            table.kind_of(target)  # raises NoSuchExchange
        elif not self._namespace.has(kind, target):
            raise no_target(kind, target, f"in namespace {self._namespace.name!r}", self.name)

    def _is_bound(self, table: Table, binding: Operation) -> bool:
        if table.kind_of(self.name) != self.kind:
            raise NoSuchExchange(
                f"exchange {self.name!r} was deleted, and is one of another kind now: attach to it"
            )
        return table.is_bound(self.name, binding)

    def bindings(self) -> list[api.Binding]:
        self._check_open()
        with self._book.table() as table:
            return table.bindings(self.name)

    def stats(self) -> api.ExchangeStats:
        self._check_open()
        return self._book.stats(self.name)

    # ---- publishing ----

    def route(
        self,
        bodies: list[Any],
        key: str,
        block: bool | None,
        until: float | None,
        confirm: Any,
        mandatory: bool,
        properties: Mapping[str, Any],
    ) -> api.Published:
        letters = deliveries_of(bodies, properties, self.default)
        outcome = self.deliver(letters, key, properties.get("headers"), confirm)
        finish(outcome, block, until)
        return outcome.published(self.name, mandatory)

    def deliver(
        self,
        letters: Deliveries,
        key: str,
        headers: Mapping[str, Any] | None,
        confirm: Any = None,
        only: Mapping[str, int] | None = None,
    ) -> Outcome:
        """Put the messages into the queues that the key or the headers route to, without waiting.

        ``key`` is valid; ``only`` maps the queues that lack messages to the number that each has.
        Raises what a publish that puts nothing raises; the refusals of queues are in the outcome.
        """
        while True:
            route = self._book.route(self.name, key, headers or {})
            self._targets.note(self._book.changes)
            names = [name for name in _list_labels(route) if only is None or name in only]
            outcome = begin(*self._make_copies(names, key, letters, confirm, only or {}))
            if outcome.reached or not names:
                break
        if only is None:  # otherwise it was counted before
            count = letters.count
            self._book.count(self.name, count, 0 if outcome.reached else count)
        return outcome

    def _make_copies(
        self,
        names: list[str],
        key: str,
        letters: Deliveries,
        confirm: Any,
        before: Mapping[str, int],
    ) -> tuple[list[QueueDelivery], dict[str, ShmqError]]:
        """The copies for each queue; queues that were deleted are forgotten."""
        copies: list[QueueDelivery] = []
        refused: dict[str, ShmqError] = {}
        for name in names:
            try:
                queue = self._targets.of(name)
            except (NoSuchQueue, NoSuchStream):
                self._forget(name)
                continue
            except ShmqError as error:
                refused[name] = error
                continue
            had = before.get(name, 0)
            if name.startswith(_STREAM):
                copies.append(letters.append_for(queue, key, confirm, had))
            else:
                copies.append(letters.delivery_for(queue, confirm, had))
        return copies, refused

    def _forget(self, name: str) -> None:
        kind, name = (
            ("stream", name[len(_STREAM) :]) if name.startswith(_STREAM) else ("queue", name)
        )
        with self._namespace.locked():
            if not self._namespace.has(kind, name):
                self._book.forget(kind, name)

    def target(self, name: str) -> Any:
        """The queue of that name, kept attached. Raises NoSuchQueue, SegmentError."""
        return self._targets.of(name)

    def close(self) -> None:
        super().close()
        self._targets.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, _attach_by_name, self._namespace.name, self.name)

    def __repr__(self) -> str:
        return f"<LocalExchange {self.name!r} ({self.kind}) of namespace {self._namespace.name!r}>"


def _list_labels(route: Route) -> list[str]:
    """The target names of a route; streams have a prefix."""
    return [*route.queues, *(f"{_STREAM}{name}" for name in route.streams)]


def _is_deleted(target: Any) -> bool:
    """Whether the queue or stream was deleted."""
    segment = target.segment if isinstance(target, LocalQueue) else target.control
    return bool(segment.deleted)


def _attach_by_name(namespace: str, name: str) -> LocalExchange:
    return ExchangeCollection(Namespace.of(namespace)).open(name)


def _attach(namespace: Namespace, name: str) -> Any:
    """Attach to the queue of that name, or for ``stream/NAME`` to the stream."""
    queue, _, stream = name.partition("/")
    if not stream:
        return attach(namespace, queue)
    with late_imports:  # most exchanges have no streams
        from shmq.client.local import stream as streams  # noqa: PLC0415

    return streams.attach(namespace, stream)
