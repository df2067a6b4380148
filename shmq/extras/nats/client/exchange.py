"""The exchanges of a cluster: their table is a definition, and the publisher routes by it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Final, Literal, TypeVar

from shmq import api, errors
from shmq.client.handles.exchange import ExchangeHandle, no_target, published
from shmq.client.ports.broker import CollectionPort
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.put import Item, Puts
from shmq.extras.nats.client.queue_layout import QueueLayout, options_of
from shmq.extras.nats.client.stream import NatsStream
from shmq.extras.nats.client.streams import StreamCopies, copies_for
from shmq.extras.nats.client.watch import Watch
from shmq.model.routing.table import Operation, Table, check_exchange, operation_of
from shmq.native import _clock as time

_T = TypeVar("_T")

_KEY: Final = "exchanges"


class Exchanges:
    """The table of a namespace's exchanges. It runs in the process's loop."""

    #: When this process changed the table of a namespace last (monotonic).
    _changed_at: ClassVar[dict[tuple[str, str], float]] = {}

    def __init__(self, connection: ClusterConnection, definitions: Definitions) -> None:
        self.definitions = definitions
        self._where = connection.url, connection.namespace
        self._watch = Watch(connection, definitions.subject(_KEY))
        self._known: tuple[Table, int] = (Table(), 0)
        self._known_at = -math.inf

    async def table(self) -> tuple[Table, int]:
        """The table as it is now, and its revision."""
        table = Table()
        found = await self.definitions.get(_KEY)
        if found is None:
            return table, 0
        try:
            for row in found.value["operations"]:
                table.apply(operation_of(row, table))
        except (KeyError, TypeError, ValueError, errors.NoSuchExchange) as error:
            raise errors.ServerError(f"the table of exchanges cannot be read: {error}") from error
        return table, found.revision

    async def known(self) -> tuple[Table, int]:
        """The table and its revision, for a publish: what others changed may lack for `STALE`."""
        await self._watch.start()
        changed_at = self._changed_at.get(self._where, -math.inf)
        if changed_at >= self._known_at or self._watch.is_old(self._known[1], self._known_at):
            asked_at = time.monotonic()
            self._known = await self.table()
            self._known_at = asked_at
        return self._known

    async def change(self, operation: Operation, is_new: Callable[[Table], bool]) -> bool:
        """Apply the operation, if it changes anything; whether it did."""
        while True:
            table, revision = await self.table()
            if not is_new(table):
                return False
            table.apply(operation)
            value = {"operations": list(table.operations())}
            if await self.definitions.put(_KEY, value, revision) is not None:
                self._changed_at[self._where] = time.monotonic()
                return True

    async def forget(self, kind: str, name: str) -> None:
        """Remove what is bound to a target that is deleted."""
        await self.change(["forget", kind, name], lambda table: table.leads_to(kind, name))


class ExchangeCollection(CollectionPort):
    """The exchanges of the namespace of a broker."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._exchanges: Exchanges = broker.exchanges

    def make(
        self, name: str, wanted: Mapping[str, Any], given: Mapping[str, Any], exact: bool
    ) -> NatsExchange:
        del given
        kind, alternate = wanted["kind"], wanted["alternate"]

        def is_new(table: Table) -> bool:
            if exact:
                table.check_kind(name, kind, alternate)
            return not table.has(name)

        self._change(check_exchange(name, kind, alternate), is_new)
        return self.open(name)

    def _change(self, operation: Operation, is_new: Callable[[Table], bool]) -> None:
        self._broker.connection.run(self._exchanges.change(operation, is_new))

    def _table(self) -> Table:
        table: Table = self._broker.connection.run(self._exchanges.table())[0]
        return table

    def open(self, name: str, to_put: bool = False) -> NatsExchange:
        del to_put
        return NatsExchange(self._broker, self._table().summary(name))

    def delete(self, name: str) -> None:
        self._change(["delete", name], lambda table: bool(table.summary(name)))

    def summaries(self) -> list[api.ExchangeSummary]:
        return self._table().summaries()


class NatsExchange(ExchangeHandle):
    """An exchange of a cluster. Threads may share it; it shares its broker's connection."""

    def __init__(self, broker: Any, summary: api.ExchangeSummary) -> None:
        super().__init__(summary.name, summary.kind, summary.alternate)
        self._broker = broker
        self._exchanges: Exchanges = broker.exchanges
        #: The targets by the table of that revision: deleting one changes the table.
        self._puts: dict[str, Puts] = {}
        self._streams: dict[str, NatsStream] = {}
        self._revision = -1

    # ---- bindings ----

    def change_binding(
        self, action: Literal["bind", "unbind"], binding: Operation, given: Mapping[str, Any]
    ) -> bool:
        binds = action == "bind"

        async def change() -> bool:
            if binds:
                await self._check_target(given["kind"], given["target"])
            return await self._exchanges.change(
                [action, self._name, *binding],
                lambda table: table.is_bound(self._name, binding) != binds,
            )

        return self._run(change())

    async def _check_target(self, kind: str, target: str) -> None:
        if kind == "exchange":
            table, _ = await self._exchanges.table()
            is_there = table.has(target)
        else:
            definitions = self._exchanges.definitions
            is_there = await definitions.get(kv_key(kind, target)) is not None
        if not is_there:
            raise no_target(kind, target, f"at {self._broker.url}", self._name)

    def bindings(self) -> list[api.Binding]:
        self._check_open()
        table, _ = self._run(self._exchanges.table())
        return table.bindings(self._name)

    def stats(self) -> api.ExchangeStats:
        self._check_open()
        table, _ = self._run(self._exchanges.table())
        table.summary(self._name)
        return api.ExchangeStats()  # the publishers of a cluster share no counter

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
        return self._run(self._route(bodies, key, block, until, confirm, mandatory, properties))

    async def _route(
        self,
        bodies: list[Any],
        key: str,
        block: bool | None,
        until: float | None,
        confirm: Any,
        mandatory: bool,
        properties: Mapping[str, Any],
    ) -> api.Published:
        table, revision = await self._exchanges.known()
        if revision != self._revision:
            self._puts, self._streams, self._revision = {}, {}, revision
        route = table.route(self._name, key, properties.get("headers") or {})
        deliveries: list[_QueueCopies | StreamCopies] = []
        for name in route.queues:
            puts = await self._find_puts(name)
            if puts is not None:
                puts.check_confirm(confirm)
                items = [puts.item(body, properties, self.default) for body in bodies]
                deliveries.append(_QueueCopies(puts, items))
        for name in route.streams:
            stream = await self._find_stream(name)
            if stream is not None:
                deliveries.append(
                    copies_for(stream, bodies, key, properties, confirm, self.default)
                )
        done = await asyncio.gather(*(one.run(block, until) for one in deliveries))
        refused = {one.name: one.error for one in deliveries if one.error is not None}
        duplicates = sum(one.duplicates for one in deliveries)
        gone = sum(one.is_gone for one in deliveries)
        counts = len(deliveries) - gone, sum(done) - duplicates, duplicates
        return published(self._name, mandatory, *counts, refused)

    async def _find_puts(self, name: str) -> Puts | None:
        """The puts of the queue; None: it is gone."""
        known = self._puts.get(name)
        if known is None:
            definitions = self._exchanges.definitions
            found = await definitions.get(kv_key("queue", name))
            if found is None:
                return None
            layout = QueueLayout(self._broker.connection, name, options_of(found.value))
            known = self._puts[name] = Puts(layout, definitions)
        return known

    async def _find_stream(self, name: str) -> NatsStream | None:
        """The stream; None: it is gone."""
        known = self._streams.get(name)
        if known is None:
            known = await self._broker.streams.find(name)
            if known is not None:
                self._streams[name] = known
        return known

    # ---- the end ----

    def _check_open(self) -> None:
        self._closed = self._closed or self._broker.connection.closed
        super()._check_open()

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        found: _T = self._broker.connection.run(coroutine)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach_by_name, (self._broker, self._name)

    def __repr__(self) -> str:
        return f"<NatsExchange {self._name!r} ({self._kind}) of {self._broker.url}>"


class _QueueCopies:
    """The copies for one queue, in order."""

    def __init__(self, puts: Puts, items: list[Item]) -> None:
        self._puts = puts
        self._items = items
        self.name = puts.name
        self.error: errors.ShmqError | None = None
        self.duplicates = 0
        self.is_gone = False

    async def run(self, block: bool | None, until: float | None) -> int:
        """Put them; returns how many the queue took."""
        waits = until is not None or self._puts.options.overflow == "block"
        waits = waits if block is None else block
        taken = 0
        try:
            for item in self._items:
                put = await self._puts.put(item, waits, until)
                taken += 1
                self.duplicates += put.duplicate
        except errors.QueueDeleted:
            self.is_gone = True
        except errors.Full as error:
            self.error = error
            if taken:
                self.error = errors.Full(f"it took {taken} of {len(self._items)} messages: {error}")
        except errors.ShmqError as error:
            self.error = error
        return taken


def _attach_by_name(broker: Any, name: str) -> NatsExchange:
    exchange: NatsExchange = broker.exchange(name)
    return exchange
