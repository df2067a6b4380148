"""Requests about exchanges and schemas, within the rights of the client's token.

A publisher needs the right to produce to the exchange, and none to the queues behind it: the
client that binds a queue must have that right, and delegates it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from shmq.api import ExchangeSummary
from shmq.api.options import check_one_of
from shmq.client.handles.exchange import Deliveries, Outcome, is_synced
from shmq.client.local.broker import LocalBroker
from shmq.client.local.exchange import LocalExchange
from shmq.client.local.queue import LocalQueue
from shmq.client.shared import durability
from shmq.errors import Forbidden, NoSuchExchange, NoSuchQueue, NoSuchStream, SchemaError
from shmq.host.namespace.namespace import Namespace
from shmq.model.codec.codecs import put_arguments
from shmq.model.routing.topic import check_key
from shmq.model.schema.compare import Compatibility
from shmq.protocol.messages.exchange import (
    Bindings,
    Changed,
    ExchangeRequest,
    Route,
    Routed,
    Shown,
    Unsynced,
)
from shmq.protocol.messages.payload import pack_map
from shmq.protocol.messages.queue import SchemaAnswer, SchemaRequest
from shmq.protocol.opcodes import Right
from shmq.protocol.status import status_of

#: The payload of the answer to a "delete": an empty map.
_NOTHING: Final = pack_map({})
_CHANGES: Final = frozenset({"create", "delete", "bind", "unbind"})

#: The session's rights to a name, as the engine's bits.
Rights = Callable[[str], int]
#: What a request asks: its arguments by name.
Asked = Mapping[str, Any]


class ExchangeHandler:
    """The exchanges of a server's namespace, as its clients see them."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._open: dict[str, LocalExchange] = {}
        #: Guards the open exchanges: several threads use them, and none is closed while in use.
        self._lock = threading.RLock()
        self._actions: dict[str, Callable[[Rights, str, Asked], bytes]] = {
            "create": self._create,
            "look": self._poll,
            "delete": self._delete,
            "bind": self._bind,
            "unbind": self._unbind,
            "bindings": self._list_bindings,
            "stats": self._read_stats,
            "synced": self._find_unsynced,
        }

    def summaries(self, rights: Rights) -> list[ExchangeSummary]:
        """The exchanges to which the session has any right."""
        found = [each for each in self._broker.list_exchanges() if rights(each.name)]
        return [
            dataclasses.replace(each, alternate=_filter_visible(each.alternate, rights))
            for each in found
        ]

    def ask(self, rights: Rights, name: str, asked: ExchangeRequest) -> bytes:
        """Carry out an EXCHANGE; returns the payload of the answer.

        Raises ShmqError, and TypeError for a value of another type.
        """
        with contextlib.ExitStack() as stack:
            if asked.action in _CHANGES:
                stack.enter_context(durability.on_disk(Namespace.of(self._broker.namespace)))
            stack.enter_context(self._lock)  # inside, so it is not held while waiting for the disk
            return self._actions[asked.action](rights, name, asked.arguments)

    # ---- making and finding ----

    def _create(self, rights: Rights, name: str, asked: Asked) -> bytes:
        _require(rights, name, Right.ADMIN, "administer")
        alternate = asked.get("alternate")
        if isinstance(alternate, str):
            _require(rights, alternate, Right.PRODUCE, "produce to the alternate")
        self._broker.create_exchange(name, asked.get("kind", "direct"), alternate).close()
        return self._poll(rights, name, asked)

    def _poll(self, rights: Rights, name: str, _: Asked) -> bytes:
        exchange = self._attach(name)
        return Shown(exchange.kind, _filter_visible(exchange.alternate, rights)).pack()

    def _delete(self, rights: Rights, name: str, _: Asked) -> bytes:
        self._attach(name)
        _require(rights, name, Right.ADMIN, "administer")
        self._broker.delete_exchange(name)
        self._open.pop(name).close()
        return _NOTHING

    def _attach(self, name: str) -> LocalExchange:
        """The exchange of that name as it is now. Raises NoSuchExchange."""
        found = self._broker.exchange(name)
        kept = self._open.get(name)
        if kept is not None and (kept.kind, kept.alternate) == (found.kind, found.alternate):
            return kept
        if kept is not None:
            kept.close()
        self._open[name] = found
        return found

    # ---- bindings ----

    def _bind(self, rights: Rights, name: str, asked: Asked) -> bytes:
        exchange = self._attach(name)
        _require(rights, name, Right.ADMIN, "administer")
        given: dict[str, Any] = {"target": None, **asked}
        target, kind = given["target"], given.get("kind", "queue")
        if isinstance(target, str) and not rights(target):
            return Changed(False, kind).pack()
        _require(rights, str(target), Right.PRODUCE, "produce to")
        try:
            return Changed(exchange.bind(**given)).pack()
        except (NoSuchQueue, NoSuchStream, NoSuchExchange):
            self._broker.exchange(name)
            return Changed(False, kind).pack()

    def _unbind(self, rights: Rights, name: str, asked: Asked) -> bytes:
        exchange = self._attach(name)
        _require(rights, name, Right.ADMIN, "administer")
        given: dict[str, Any] = {"target": None, **asked}
        return Changed(exchange.unbind(**given)).pack()

    def _list_bindings(self, rights: Rights, name: str, _: Asked) -> bytes:
        found = self._attach(name).bindings()
        return Bindings([each for each in found if rights(each.target)]).pack()

    def _read_stats(self, rights: Rights, name: str, _: Asked) -> bytes:
        del rights  # any right is enough
        return pack_map(self._attach(name).stats())

    # ---- publishing ----

    def route(self, rights: Rights, name: str, rest: bytes) -> Routed:
        """Carry out a ROUTE. Raises ShmqError, and TypeError for a value of another type."""
        with self._lock:
            return self._route(rights, name, rest)

    def _route(self, rights: Rights, name: str, rest: bytes) -> Routed:
        asked = Route.unpack(rest)
        properties = put_arguments(asked.properties)
        exchange = self._attach(name)
        _require(rights, name, Right.PRODUCE, "produce to")
        codec = properties.pop("codec", None) or "bytes"
        letters = Deliveries([(body, codec) for body in asked.bodies], properties)
        outcome = exchange.deliver(
            letters, check_key(asked.key), properties.get("headers"), asked.confirm, asked.only
        )
        unsynced = {
            copy.name: copy.number
            for copy in outcome.copies
            if copy.confirms and copy.sequence and not is_synced(copy.queue, copy.number)
        }
        refused = {name: _explain(outcome, name) for name in outcome.refused}
        return Routed(*outcome.counts(), refused, unsynced)

    def _find_unsynced(self, rights: Rights, name: str, asked: Asked) -> bytes:
        """The queues that do not have the published messages on disk yet, with the disk's error."""
        exchange = self._attach(name)
        _require(rights, name, Right.PRODUCE, "produce to")
        left = {}
        for queue_name, sequence in asked["queues"].items():
            with contextlib.suppress(NoSuchQueue, NoSuchStream, IndexError):
                queue = exchange.target(queue_name)
                if not is_synced(queue, sequence):
                    error = queue.journal.error if isinstance(queue, LocalQueue) else 0
                    left[queue_name] = os.strerror(error) if error else None
        return Unsynced(left).pack()


def _require(rights: Rights, name: str, right: int, what: str) -> None:
    if not rights(name) & right:
        raise Forbidden(f"the token has no right to {what} {name!r}")


def _filter_visible(alternate: str | None, rights: Rights) -> str | None:
    """The alternate, if the session has any right to it."""
    return alternate if alternate is not None and rights(alternate) else None


def _explain(outcome: Outcome, name: str) -> tuple[int, str, int, bool]:
    """Why a queue refused: status, text, how many it took, and whether the publisher waits."""
    error = outcome.refused[name]
    taken, waits = 0, False
    for copy in outcome.copies:
        if copy.name == name:
            taken, waits = copy.taken, copy.waits
    return status_of(error), str(error), taken, waits


# ---- schemas ----

_RULES: Final = get_args(Compatibility)


def schema_answer(broker: LocalBroker, name: str, asked: SchemaRequest) -> SchemaAnswer:
    """The answer; it also says why a schema is refused, and for which field.

    Raises InvalidOption, NoSuchQueue, and the errors of the schema file.
    """
    if asked.schema is None:
        return SchemaAnswer(broker.schemas(name))
    if asked.compatibility is not None:
        check_one_of("compatibility", asked.compatibility, _RULES)
    try:
        if asked.action == "set":
            made = broker.set_schema(name, asked.schema, asked.compatibility)
            return SchemaAnswer(version=made)
        broker.check_schema(name, asked.schema, asked.compatibility)
    except SchemaError as error:
        return SchemaAnswer(refused=str(error), field=error.field)
    return SchemaAnswer()
