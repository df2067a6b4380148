"""Requests about tables, within the rights of the client's token. For any thread."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from shmq.client.handles.table import check_increment, check_table
from shmq.client.local.broker import LocalBroker
from shmq.client.local.table import LocalTable
from shmq.errors import Forbidden, LockTimeout, NoSuchTable, ShmqError, TableDeleted
from shmq.model.table.entries import Entries
from shmq.model.table.entry import check_key, check_limit, check_most, check_prefix, check_ttl
from shmq.native._core import Session
from shmq.protocol.messages.payload import pack_map
from shmq.protocol.messages.table import TableInfo, TableRequest, pack_entries
from shmq.protocol.opcodes import Right
from shmq.protocol.status import Refusal
from shmq.server.handlers.refusals import QuotaRequest, Quotas

#: The session's rights to a name, as the engine's bits.
Rights = Callable[[str], int]
Asked = Mapping[str, Any]

#: A worker keeps so many tables open, of seven descriptors each.
_OPEN: Final = 36
#: The most keys of a request that the event loop carries out, and the most bytes of their values.
_FEW: Final = 16
_LITTLE: Final = 64 << 10
#: The answer to a "get" or a "keys" ends after so many bytes.
_MOST: Final = 4 << 20

_WHAT: Final = {Right.PRODUCE: "write to", Right.CONSUME: "read", Right.ADMIN: "administer"}


class _Open(NamedTuple):
    """A table that is kept open."""

    table: LocalTable
    #: Its entries for the thread of the event loop; None: on disk, or a lock was held until now.
    at_once: Entries | None = None


class TableHandler:
    """The tables of a server's namespace, as its clients see them."""

    def __init__(self, broker: LocalBroker, quotas: Quotas) -> None:
        self._broker = broker
        self._quotas = quotas
        self._open: OrderedDict[str, _Open] = OrderedDict()
        #: Guards what is open, but for the thread of the event loop; a table is used without it.
        self._lock = threading.Lock()
        self._actions: dict[str, tuple[int, Callable[[Entries, Asked], dict[str, Any]]]] = {
            "get": (Right.CONSUME, _get),
            "keys": (Right.CONSUME, _list_keys),
            "count": (Right.CONSUME, lambda entries, _: {"count": entries.count()}),
            "set": (Right.PRODUCE, _set),
            "add": (Right.PRODUCE, _add),
            "delete": (Right.PRODUCE, _delete),
            "clear": (Right.PRODUCE, _clear),
            "expire": (Right.PRODUCE, _expire),
            "increment": (Right.PRODUCE, _increment),
        }

    def names(self, rights: Rights) -> list[str]:
        """The tables to which the session has any right."""
        return [name for name in self._broker.list_tables() if rights(name)]

    def ask(self, session: Session, rights: Rights, name: str, asked: TableRequest) -> bytes:
        """Carry out a TABLE; returns the payload of the answer.

        Raises ShmqError, and TypeError for a value of another type.
        """
        if not rights(name):
            raise NoSuchTable.of(name, "here")
        if asked.action == "make":
            return self._make(session, rights, name, asked.arguments)
        if asked.action == "look":
            return _describe(self._attach(name))
        if asked.action == "drop":
            return self._drop(rights, name)
        right, carry_out = self._actions[asked.action]
        table = self._attach(name)
        _require(rights, name, right)
        if table.identity != asked.identity:
            raise TableDeleted(f"table {name!r} was deleted, and another one has its name")
        return pack_map(carry_out(table.entries, asked.arguments))

    def ask_at_once(self, rights: Rights, name: str, rest: bytes) -> bytes | None:
        """Carry out a TABLE in the thread of the event loop, if that waits for nothing.

        Returns the payload of the answer; None if nothing was done: the table is on disk or not
        open, the request is long or to be refused, or a lock is held.
        """
        found = self._open.get(name)
        if found is None or found.at_once is None:
            return None
        entries = found.at_once
        try:
            asked = TableRequest.unpack(rest)
            is_short = _SHORT.get(asked.action)
            if is_short is None or asked.identity != found.table.identity:
                return None
            right, carry_out = self._actions[asked.action]
            if not rights(name) & right or not is_short(entries, asked.arguments):
                return None
            return pack_map(carry_out(entries, asked.arguments))
        except (Refusal, ShmqError, TypeError, OSError):
            return None  # a side thread finds out again, and answers

    def _make(self, session: Session, rights: Rights, name: str, asked: Asked) -> bytes:
        _require(rights, name, Right.ADMIN)
        durability, max_bytes = asked.get("durability", "memory"), asked.get("max_bytes")
        check_table(durability, max_bytes)

        def wished() -> QuotaRequest | None:
            there = name in self._broker.list_tables()
            return None if there else QuotaRequest("tables", [name], max_bytes)

        with self._quotas.room_for(session, wished):
            self._broker.ensure_table(
                name, durability, max_bytes=max_bytes, if_different="accept"
            ).close()
        return _describe(self._attach(name))

    def _drop(self, rights: Rights, name: str) -> bytes:
        if name not in self._broker.list_tables():  # a damaged one is deleted, and cannot be opened
            raise NoSuchTable.of(name, "here")
        _require(rights, name, Right.ADMIN)
        with self._lock:  # a table that is open keeps its memory
            self._open.pop(name, None)
        self._broker.delete_table(name)
        return pack_map({})

    def _attach(self, name: str) -> LocalTable:
        """The table that has the name now. Raises NoSuchTable."""
        with self._lock:
            kept = self._open.get(name)
            if kept is None or not kept.table.database.path.exists():
                # The former is closed with its last reference, which another thread may have.
                self._open.pop(name, None)
                kept = _Open(self._broker.table(name))
            if kept.at_once is None and kept.table.durability == "memory":
                with contextlib.suppress(LockTimeout):
                    kept = _Open(kept.table, _open_at_once(kept.table))
            self._open[name] = kept
            self._open.move_to_end(name)
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
            return kept.table


def _require(rights: Rights, name: str, right: int) -> None:
    if not rights(name) & right:
        raise Forbidden(f"the token has no right to {_WHAT[Right(right)]} table {name!r}")


def _open_at_once(table: LocalTable) -> Entries:
    """Its entries for the thread of the event loop, which does not open files. Raises ShmqError."""
    entries = table.entries.without_waiting()
    entries.look("")
    return entries


def _describe(table: LocalTable) -> bytes:
    return TableInfo(table.identity, table.durability, table.max_bytes).pack()


# ---- requests of which each takes some microseconds ----


def _finds_little(entries: Entries, asked: Asked) -> bool:
    keys = asked["keys"]
    return len(keys) <= _FEW and entries.measure(keys) <= _LITTLE


def _sets_little(_: Entries, asked: Asked) -> bool:
    new = asked["entries"]
    return len(new) <= _FEW and sum(len(each.raw) for each in new.values()) <= _LITTLE


_SHORT: Final[dict[str, Callable[[Entries, Asked], bool]]] = {
    "get": _finds_little,
    "set": _sets_little,
    "add": _sets_little,
    "delete": _finds_little,
    "expire": lambda *_: True,
    "increment": lambda _, asked: len(asked["sum_with"]) <= _FEW,
}


# ---- one action each ----


def _get(entries: Entries, asked: Asked) -> dict[str, Any]:
    keys = asked["keys"]
    found = entries.find(keys, _MOST)
    size = sum(len(stored.raw) for stored in found.values())
    looked = 1 + keys.index(next(reversed(found))) if size >= _MOST else len(keys)
    return {"found": pack_entries(found), "looked": looked}


def _list_keys(entries: Entries, asked: Asked) -> dict[str, Any]:
    prefix, after = (check_prefix(asked.get(key, ""), key) for key in ("prefix", "after"))
    limit = check_limit(asked.get("limit", 1000))
    found: list[str] = []
    size = 0
    for key in entries.keys(prefix, limit, after):
        found.append(key)
        size += len(key.encode())
        if size >= _MOST:
            return {"keys": found, "more": True}
    return {"keys": found, "more": False}


def _set(entries: Entries, asked: Asked) -> dict[str, Any]:
    entries.store(asked["entries"], check_ttl(asked["ttl"]))
    return {}


def _add(entries: Entries, asked: Asked) -> dict[str, Any]:
    ((key, stored),) = asked["entries"].items()
    return {"added": entries.add(key, stored, check_ttl(asked["ttl"]))}


def _delete(entries: Entries, asked: Asked) -> dict[str, Any]:
    return {"deleted": entries.delete(dict.fromkeys(asked["keys"]))}


def _clear(entries: Entries, asked: Asked) -> dict[str, Any]:
    return {"deleted": entries.clear(check_most(asked.get("most")))}


def _expire(entries: Entries, asked: Asked) -> dict[str, Any]:
    return {"there": entries.expire(check_key(asked.get("key")), check_ttl(asked["ttl"]))}


def _increment(entries: Entries, asked: Asked) -> dict[str, Any]:
    names = ("least", "most", "create", "renew")
    given = {name: asked[name] for name in names if name in asked}
    arguments = check_increment(
        check_key(asked.get("key")),
        asked.get("by", 1),
        ttl=asked["ttl"],
        sum_with=tuple(asked["sum_with"]),
        **given,
    )
    return {"value": entries.increment(*arguments)}
