"""Requests about exchanges and schemas, within the rights of the client's token.

A publisher needs the right to produce to the exchange, and none to the queues behind it: the
client that binds a queue must have that right, and delegates it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any, Final, get_args

from shmq.api import Binding
from shmq.api.options import check_one_of
from shmq.client.local.broker import LocalBroker
from shmq.client.local.exchange import LocalExchange
from shmq.client.local.queue import LocalQueue
from shmq.client.shared import durability, exchange_delivery
from shmq.errors import (
    Forbidden,
    InvalidOption,
    NoSuchExchange,
    NoSuchQueue,
    NoSuchStream,
    SchemaError,
)
from shmq.namespace.namespace import Namespace
from shmq.protocol.messages.exchange import Route, unpack_counts
from shmq.protocol.opcodes import Right
from shmq.protocol.status import status_of
from shmq.schema.compare import Compatibility

__all__ = [
    "ExchangeHandler",
    "changes",
    "schema_answer",
]

_CHANGES: Final = frozenset({"create", "delete", "bind", "unbind"})

#: The session's rights to a name, as the engine's bits.
Rights = Callable[[str], int]
Asked = dict[str, Any]

#: The properties of a message by their keys on the wire: the argument, and its unit in seconds.
_PROPERTIES: Final[dict[str, tuple[str, float | None]]] = {
    "codec": ("codec", None),
    "pri": ("priority", None),
    "delay": ("delay", 0.001),
    "ttl": ("ttl", 0.001),
    "headers": ("headers", None),
    "group": ("group", None),
    "dedupe": ("dedupe_id", None),
    "reply_to": ("reply_to", None),
    "corr": ("correlation", None),
}


class ExchangeHandler:
    """The exchanges of a server's namespace, as its clients see them."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._open: dict[str, LocalExchange] = {}
        #: Guards the open exchanges: several threads use them, and none is closed while in use.
        self._lock = threading.RLock()
        self._actions: dict[str, Callable[[Rights, str, Asked], Asked]] = {
            "create": self._create,
            "look": self._look,
            "delete": self._delete,
            "bind": self._bind,
            "unbind": self._bind,
            "bindings": self._bindings,
            "synced": self._synced,
        }

    def summaries(self, rights: Rights) -> list[Asked]:
        """The exchanges to which the session has any right."""
        found = [each for each in self._broker.list_exchanges() if rights(each.name)]
        return [_hidden(dataclasses.asdict(each), rights) for each in found]

    def ask(self, rights: Rights, name: str, asked: Asked) -> Asked:
        """Carry out an EXCHANGE. Raises ShmqError, and TypeError for a value of another type."""
        told = asked.get("action", "")
        action = self._actions.get(told)
        if action is None:
            raise InvalidOption(f"'action' must be one of {', '.join(self._actions)}")
        with contextlib.ExitStack() as stack:
            if told in _CHANGES:
                stack.enter_context(durability.on_disk(Namespace.of(self._broker.namespace)))
            stack.enter_context(self._lock)  # inside, so it is not held while waiting for the disk
            return action(rights, name, asked)

    # ---- making and finding ----

    def _create(self, rights: Rights, name: str, asked: Asked) -> Asked:
        _need(rights, name, Right.ADMIN, "administer")
        alternate = asked.get("alternate")
        if isinstance(alternate, str):
            _need(rights, alternate, Right.PRODUCE, "produce to the alternate")
        self._broker.create_exchange(name, asked.get("kind", "direct"), alternate).close()
        return self._look(rights, name, asked)

    def _look(self, rights: Rights, name: str, _: Asked) -> Asked:
        exchange = self._attached(name)
        found = {"kind": exchange.kind, "alternate": exchange.alternate}
        return _hidden(found, rights)

    def _delete(self, rights: Rights, name: str, _: Asked) -> Asked:
        self._attached(name)
        _need(rights, name, Right.ADMIN, "administer")
        self._broker.delete_exchange(name)
        self._open.pop(name).close()
        return {}

    def _attached(self, name: str) -> LocalExchange:
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

    def _bind(self, rights: Rights, name: str, asked: Asked) -> Asked:
        exchange = self._attached(name)
        _need(rights, name, Right.ADMIN, "administer")
        given = {key: asked[key] for key in ("key", "kind", "headers", "match") if key in asked}
        target = asked.get("target")
        if asked["action"] == "unbind":
            return {"changed": exchange.unbind(target, **given)}  # type: ignore[arg-type]
        kind = given.get("kind", "queue")
        if isinstance(target, str) and not rights(target):
            return {"changed": False, "missing": kind}
        _need(rights, str(target), Right.PRODUCE, "produce to")
        try:
            return {"changed": exchange.bind(target, **given)}  # type: ignore[arg-type]
        except (NoSuchQueue, NoSuchStream, NoSuchExchange):
            self._broker.exchange(name)
            return {"changed": False, "missing": kind}

    def _bindings(self, rights: Rights, name: str, _: Asked) -> Asked:
        found = self._attached(name).bindings()
        return {"bindings": [_as_list(each) for each in found if rights(each.target)]}

    # ---- publishing ----

    def route(self, rights: Rights, name: str, rest: bytes) -> Asked:
        """Carry out a ROUTE. Raises ShmqError, and TypeError for a value of another type."""
        with self._lock:
            return self._routed(rights, name, rest)

    def _routed(self, rights: Rights, name: str, rest: bytes) -> Asked:
        asked = Route.unpack(rest)
        properties = _arguments(asked.properties)
        exchange = self._attached(name)
        _need(rights, name, Right.PRODUCE, "produce to")
        codec = properties.pop("codec", None) or "bytes"
        letters = exchange_delivery.Deliveries([(body, codec) for body in asked.bodies], properties)
        outcome = exchange.deliver(
            letters,
            asked.key,
            properties.get("headers"),
            asked.confirm,
            asked.only,
        )
        return {
            "reached": outcome.reached,
            "delivered": outcome.delivered,
            "duplicates": outcome.duplicates,
            "refused": {name: _why(outcome, name) for name in outcome.refused},
            "unsynced": {
                copy.name: copy.number
                for copy in outcome.copies
                if copy.confirms
                and copy.sequence
                and not exchange_delivery.is_synced(copy.queue, copy.number)
            },
        }

    def _synced(self, rights: Rights, name: str, asked: Asked) -> Asked:
        """The queues that do not have the published messages on disk yet, with the disk's error."""
        exchange = self._attached(name)
        _need(rights, name, Right.PRODUCE, "produce to")
        left = {}
        for queue_name, sequence in unpack_counts(asked, "queues").items():
            with contextlib.suppress(NoSuchQueue, NoSuchStream, IndexError):
                queue = exchange.target(queue_name)
                if not exchange_delivery.is_synced(queue, sequence):
                    error = queue.journal.error if isinstance(queue, LocalQueue) else 0
                    left[queue_name] = os.strerror(error) if error else None
        return {"unsynced": left}


def _need(rights: Rights, name: str, right: int, what: str) -> None:
    if not rights(name) & right:
        raise Forbidden(f"the token has no right to {what} {name!r}")


def _hidden(found: Asked, rights: Rights) -> Asked:
    """The exchange without its alternate, if the session has no right to the alternate."""
    if found["alternate"] is not None and not rights(found["alternate"]):
        found["alternate"] = None
    return found


def _as_list(binding: Binding) -> list[Any]:
    headers = None if binding.headers is None else dict(binding.headers)
    return [binding.target, binding.kind, binding.key, headers, binding.match]


def _why(outcome: exchange_delivery.Outcome, name: str) -> list[Any]:
    """Why a queue refused: status, text, how many it took, and whether the publisher waits."""
    error = outcome.refused[name]
    taken, waits = 0, False
    for copy in outcome.copies:
        if copy.name == name:
            taken, waits = copy.taken, copy.waits
    return [status_of(error), str(error), taken, waits]


# ---- the contents of a request ----


def _arguments(properties: Asked) -> dict[str, Any]:
    """The properties as arguments of a put; unknown ones are ignored. Raises TypeError."""
    found = {}
    for key, (argument, unit) in _PROPERTIES.items():
        value = properties.get(key)
        if value is None:
            continue
        if unit is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{key!r} must be an int")
        found[argument] = value if unit is None else value * unit
    return found


_ACTIONS: Final = ("get", "set", "check")
_RULES: Final = get_args(Compatibility)


def changes(asked: dict[str, Any]) -> bool:
    """Whether a SCHEMA request with this map sets a schema. Raises InvalidOption."""
    action = asked.get("action")
    if action not in _ACTIONS:
        raise InvalidOption(f"'action' must be one of {', '.join(_ACTIONS)}, not {action!r:.40}")
    return bool(action == "set")


def schema_answer(broker: LocalBroker, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The map of the answer. It also says why a schema is refused, and for which field.

    Raises InvalidOption, NoSuchQueue, and the errors of the schema file.
    """
    if asked["action"] == "get":
        return {
            "versions": [
                [each.version, each.schema, each.compatibility, each.at]
                for each in broker.schemas(name)
            ]
        }
    schema, rule = asked.get("schema"), asked.get("compatibility")
    if not isinstance(schema, dict):
        raise InvalidOption("it needs a 'schema', a map")
    if rule is not None:
        check_one_of("compatibility", rule, _RULES)
    try:
        if changes(asked):
            return {"version": broker.set_schema(name, schema, rule)}
        broker.check_schema(name, schema, rule)
    except SchemaError as error:
        return {"refused": str(error), "field": error.field}
    return {}
