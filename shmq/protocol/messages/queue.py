"""Control requests about queues and their schemas, and their answers."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

from shmq.api.options import QueueOptions
from shmq.api.schema import SchemaVersion
from shmq.api.stats import Attachment, Lease, QueueStats, QueueSummary
from shmq.model.expression.parse import Where
from shmq.native import _core
from shmq.protocol.messages.payload import (
    Listing,
    Numbers,
    Reply,
    Request,
    expression,
    pack_map,
    unpack_answer,
    unpack_fields,
    unpack_map,
    unpack_rows,
)
from shmq.protocol.opcodes import MAX_FRAME, Type
from shmq.protocol.status import Refusal, senseless

#: What a HELLO names as this server's features: the parts beyond the operations of every server.
_FEATURES: Final = (
    "return",
    "peek",
    "redrive",
    "where",
    "columns",
    "staging",
    "exchanges",
    "own-queues",
    "schemas",
    "filters",
    "streams",
    "holds",
    "names",
    "handed",
    "on-damage",
    "leases",
    "ready",
    "uncounted",
    "tables",
    "named-leases",
    "errors",
    "alter",
    "move",
)

#: What a FAIL has between the name and the error.
_FAIL: Final = struct.Struct("!BIH")

#: The answer to a LIST of queues with their counts.
QUEUES: Final = Listing(QueueSummary, kind="queue")


@dataclasses.dataclass(frozen=True, slots=True)
class Hello(Request):
    """A HELLO: the client's name, its token, and whether another process reports its death."""

    client: str
    token: str | None = None
    supervised: bool = False

    def pack(self) -> bytes:
        """The payload."""
        shown: dict[str, Any] = {} if self.token is None else {"token": self.token}
        if self.supervised:
            shown["supervised"] = True
        return pack_map({"client": self.client, **shown})


@dataclasses.dataclass(frozen=True, slots=True)
class Greeting:
    """The answer to a HELLO; ``extended``: the server has more than every server has."""

    server: str
    max_frame: int
    namespace: str
    extended: bool = True

    def pack(self) -> bytes:
        """The payload of this server's answer."""
        return pack_map(
            {
                "server": self.server,
                "max_frame": self.max_frame,
                "features": _FEATURES,
                "namespace": self.namespace,
            }
        )

    @classmethod
    def unpack(cls, answer: _core.Answer, place: str) -> Self:
        """Unpack the answer; ``place`` is the namespace if the answer names none.

        Raises ServerError, TypeError, ValueError and OverflowError for a malformed answer.
        """
        said = unpack_answer(answer)
        return cls(
            str(said.get("server", "")),
            int(said.get("max_frame", MAX_FRAME)),
            str(said.get("namespace", place)),
            bool(said.get("features")),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Fail:
    """A FAIL: a NACK with a delay in ms, or a REJECT, and the packed error that messages keep."""

    kind: int
    ms: int
    error: bytes
    receipts: list[int]

    def pack(self) -> bytes:
        """The payload behind the name."""
        head = _FAIL.pack(self.kind == Type.REJECT, self.ms, len(self.error))
        return head + self.error + struct.pack(f"!{len(self.receipts)}Q", *self.receipts)


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    """A CREATE; ``own``: of a reply queue, which is exclusive to the connection."""

    options: dict[str, Any]
    own: bool = False

    def pack(self) -> bytes:
        """The payload behind the name."""
        return pack_map({**self.options, "own": True} if self.own else self.options)

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        options = unpack_map(rest) if rest else {}
        own = options.pop("own", False)
        if not isinstance(own, bool):
            raise Refusal.bad(f"own={own!r:.40} must be true or false")
        return cls(options, own)


def unpack_queue_options(answer: _core.Answer) -> QueueOptions:
    """The options in the answer to an ALTER. Raises ServerError."""
    return unpack_fields(QueueOptions, unpack_answer(answer))


@dataclasses.dataclass(frozen=True, slots=True)
class List:
    """A LIST of the queues with their counts, of only their names, or of the names of tables."""

    only_names: bool = False
    tables: bool = False

    def pack(self) -> bytes:
        """The payload."""
        if self.tables:
            return pack_map({"tables": True})
        return pack_map({"names": True}) if self.only_names else b""

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Unpack the payload. Raises Refusal."""
        asked = unpack_map(raw) if raw else {"names": False}
        tables = asked.get("tables", False)
        only_names = asked.get("names", None if "tables" not in asked else False)
        if not isinstance(only_names, bool) or not isinstance(tables, bool):
            raise Refusal.bad("a LIST carries nothing, or 'names' or 'tables', true or false")
        return cls(only_names, tables)

    @staticmethod
    def pack_names(names: Iterable[str]) -> bytes:
        """The payload of the answer to a LIST of names."""
        return pack_map(list(names))

    @staticmethod
    def unpack_names(answer: _core.Answer) -> list[str]:
        """The names in the answer, sorted. Raises ServerError."""
        return sorted(map(str, unpack_rows(answer)))


@dataclasses.dataclass(frozen=True, slots=True)
class QueueState:
    """The answer to a STATS.

    ``identity`` is None from a server that does not know it. ``unwritten`` says which slots wait
    for the disk; None: there are none. ``exclusive_to`` says to whom the queue is exclusive; None:
    the client may use it.
    """

    stats: QueueStats
    options: QueueOptions
    attachments: list[Attachment]
    identity: int | None = None
    unwritten: str | None = None
    exclusive_to: str | None = None

    def pack(self) -> bytes:
        """The payload of the answer."""
        return pack_map(
            {
                **dataclasses.asdict(self.stats),
                "identity": self.identity,
                "unwritten": self.unwritten,
                "exclusive_to": self.exclusive_to,
                "options": self.options,
                "attachments": self.attachments,
            }
        )

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer; what a server leaves out is a default or 0. Raises ServerError."""
        said = unpack_answer(answer)
        return cls(
            unpack_fields(QueueStats, said),
            unpack_fields(QueueOptions, said.get("options")),
            [unpack_fields(Attachment, row) for row in said.get("attachments", ())],
            said.get("identity"),
            said.get("unwritten"),
            said.get("exclusive_to"),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Select(Numbers):
    """A PEEK or a REDRIVE: at most ``limit`` messages that match the expression."""

    type = Type.REDRIVE
    tail = expression(Where)
    limit: int
    where: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Move(Request):
    """A MOVE of at most ``most`` messages that match the expression to the queue ``to``."""

    to: str
    most: int | None = None
    where: str | None = None

    def check(self) -> None:
        """Raise Refusal for a field that cannot have its value."""
        if self.most is not None and self.most < 1:
            raise Refusal.bad(f"'most' is {self.most}: it must be at least 1, or null for all")


@dataclasses.dataclass(frozen=True, slots=True)
class LeasesState(Reply):
    """The answer to a LEASES; ``more``: the server has left some out, so ask again behind these."""

    leases: list[Lease] = dataclasses.field(default_factory=list)
    more: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaRequest(Request):
    """A SCHEMA: ``get`` the versions, ``set`` a schema, or ``check`` whether it could be set."""

    action: str
    schema: dict[str, Any] | None = None
    compatibility: str | None = None

    def pack(self) -> bytes:
        """The payload behind the name."""
        return pack_map({"action": self.action} if self.action == "get" else self)

    def check(self) -> None:
        if self.action not in {"get", "set", "check"}:
            raise Refusal.bad(f"'action' must be one of get, set, check, not {self.action!r:.40}")
        if self.action != "get" and self.schema is None:
            raise Refusal.bad("it needs a 'schema', a map")


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """The answer to a SCHEMA: the versions, the new version, or why the schema is refused.

    ``field`` names the part of the schema that is refused; empty: all of it.
    """

    versions: list[SchemaVersion] | None = None
    version: int | None = None
    refused: str | None = None
    field: str = ""

    def pack(self) -> bytes:
        """The payload of the answer."""
        if self.refused is not None:
            return pack_map({"refused": self.refused, "field": self.field})
        if self.version is not None:
            return pack_map({"version": self.version})
        if self.versions is None:
            return pack_map({})
        rows = [[each.version, each.schema, each.compatibility, each.at] for each in self.versions]
        return pack_map({"versions": rows})

    @classmethod
    def unpack(cls, answer: _core.Answer, name: str) -> Self:
        """Unpack the answer about the queue or stream of that name. Raises ServerError."""
        said = unpack_answer(answer)
        refused = said.get("refused")
        try:
            return cls(
                [_make_version(name, *row) for row in said.get("versions", ())],
                None if said.get("version") is None else int(said["version"]),
                None if refused is None else str(refused),
                str(said.get("field", "")),
            )
        except (TypeError, ValueError) as error:
            raise senseless(f"of the schema of {name!r}: {error}") from error


def _make_version(
    name: str, version: int, schema: Mapping[str, Any], rule: str, at: float
) -> SchemaVersion:
    return SchemaVersion(name=name, version=version, schema=schema, compatibility=rule, at=at)
