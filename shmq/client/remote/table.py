"""The tables of a server's namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from shmq import errors
from shmq.client.handles.table import TableHandle
from shmq.client.ports.steps import Steps
from shmq.client.remote.connection import Connection
from shmq.model.table.entry import Stored, Terms
from shmq.native import _core
from shmq.protocol.messages.payload import pack_name
from shmq.protocol.messages.table import (
    TableInfo,
    TableRequest,
    field_of,
    found_in,
    milliseconds_of,
    pack_entries,
)
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of

#: The longest pause of a wait, in seconds.
_PAUSE: Final = 0.05
#: The most keys of one "get", and the most bytes of them.
_KEYS: Final = 1000
_KEY_BYTES: Final = 1 << 20
#: The bytes of a "get" beside its keys.
_BESIDE: Final = 1024
#: The actions that may be carried out twice.
_AGAIN: Final = frozenset({"look", "make", "get", "keys", "count"})


def ask(connection: Connection, name: str, asked: TableRequest) -> Steps[_core.Answer]:
    """Send a request. Raises the error of a refusal, and MessageTooLarge."""
    payload = pack_name(name) + asked.pack()
    greeting = connection.greeting
    if greeting is not None and len(payload) > greeting.max_frame:
        raise errors.MessageTooLarge(
            f"the request about table {name!r} has {len(payload)} bytes, and the server takes "
            f"{greeting.max_frame}: set fewer or smaller values at once"
        )
    again = asked.action in _AGAIN
    answer: _core.Answer = yield (
        lambda: connection.ask(Type.TABLE, payload, again=again),
        lambda: connection.aask(Type.TABLE, payload, again=again),
    )
    if answer.status == Status.NO_QUEUE:
        if asked.identity:
            raise errors.TableDeleted(f"table {name!r} of {connection.url} was deleted")
        raise errors.NoSuchTable.of(name, connection.where)
    if answer.status != Status.OK:
        raise error_of(answer, f"table {name!r} of {connection.url}")
    return answer


class RemoteTable(TableHandle):
    """A table of a server. Threads may share it; it shares its broker's connection."""

    _longest_pause = _PAUSE

    def __init__(self, broker: Any, connection: Connection, name: str, info: TableInfo) -> None:
        super().__init__(name, info.durability, info.max_bytes)
        self._broker = broker
        self._connection = connection
        self._identity = info.identity
        self._closed = False

    def _ask(self, action: str, **arguments: Any) -> Steps[_core.Answer]:
        if self._closed:
            raise errors.closed_handle("table", self._name)
        if self._connection.closed:
            raise self._connection.closed_error()
        return ask(self._connection, self._name, TableRequest(action, arguments, self._identity))

    # ---- reading ----

    def _poll(self, key: str) -> Steps[Stored | None]:
        answer = yield from self._ask("get", keys=[key])
        return found_in(answer)[0].get(key)

    def _find(self, keys: list[str]) -> Steps[dict[str, Stored]]:
        found: dict[str, Stored] = {}
        for some in self._portions(keys):
            left = some
            while left:
                answer = yield from self._ask("get", keys=left)
                values, looked = found_in(answer)
                found |= values
                left = left[max(1, looked) :]
        return found

    def _portions(self, keys: Iterable[str]) -> Iterator[list[str]]:
        """The keys, as many at once as fit into a request."""
        greeting = self._connection.greeting
        most = _KEY_BYTES if greeting is None else min(_KEY_BYTES, greeting.max_frame - _BESIDE)
        some: list[str] = []
        size = 0
        for key in keys:
            bytes_ = len(key.encode()) + 5  # msgpack's head of a str
            if some and (len(some) >= _KEYS or size + bytes_ > most):
                yield some
                some, size = [], 0
            some.append(key)
            size += bytes_
        if some:
            yield some

    def _keys(self, prefix: str, limit: int, after: str) -> Steps[list[str]]:
        found: list[str] = []
        more = True
        while more and len(found) < limit:
            asked = {"prefix": prefix, "limit": limit - len(found), "after": after}
            answer = yield from self._ask("keys", **asked)
            keys = [str(key) for key in field_of(answer, "keys", list)]
            more = bool(keys) and field_of(answer, "more", bool)
            found += keys
            after = found[-1] if found else after
        return found

    def _count(self) -> Steps[int]:
        answer = yield from self._ask("count")
        return int(field_of(answer, "count", int))

    # ---- writing ----

    def _store(self, entries: dict[str, Stored], ttl: float | None) -> Steps[None]:
        yield from self._ask("set", entries=pack_entries(entries), ttl=milliseconds_of(ttl))

    def _add(self, key: str, stored: Stored, ttl: float | None) -> Steps[bool]:
        entries = pack_entries({key: stored})
        answer = yield from self._ask("add", entries=entries, ttl=milliseconds_of(ttl))
        return bool(field_of(answer, "added", bool))

    def _delete(self, keys: list[str]) -> Steps[int]:
        answer = yield from self._ask("delete", keys=keys)
        return int(field_of(answer, "deleted", int))

    def _clear(self, most: int | None) -> Steps[int]:
        answer = yield from self._ask("clear", most=most)
        return int(field_of(answer, "deleted", int))

    def _expire(self, key: str, ttl: float | None) -> Steps[bool]:
        answer = yield from self._ask("expire", key=key, ttl=milliseconds_of(ttl))
        return bool(field_of(answer, "there", bool))

    def _increment(self, key: str, by: int, ttl: float | None, terms: Terms) -> Steps[int | None]:
        asked = {"key": key, "by": by, "ttl": milliseconds_of(ttl), **terms._asdict()}
        for name in ("create", "renew"):
            if asked[name]:
                del asked[name]  # the default, also of a server that does not know the key
        answer = yield from self._ask("increment", **asked)
        value = field_of(answer, "value", int, type(None))
        return None if value is None else int(value)

    # ---- the handle ----

    def close(self) -> None:
        self._closed = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach_by_name, (self._broker, self._name)

    def __repr__(self) -> str:
        return f"<RemoteTable {self._name!r} ({self._durability}) of {self._connection.url}>"


def _attach_by_name(broker: Any, name: str) -> RemoteTable:
    table: RemoteTable = broker.table(name)
    return table
