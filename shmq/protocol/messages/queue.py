"""Control requests about queues, and their answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from shmq.expression.parse import Where
from shmq.native import _core
from shmq.protocol.messages.payload import pack_map, unpack_answer, unpack_expression, unpack_map
from shmq.protocol.opcodes import HEADS, MAX_FRAME, Feature, Type
from shmq.protocol.status import Refusal

__all__ = ["Create", "Greeting", "Hello", "List", "Select"]


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """A HELLO: the client's name, and its token."""

    client: str
    token: str | None = None

    def pack(self) -> bytes:
        """The payload."""
        shown = {} if self.token is None else {"token": self.token}
        return pack_map({"client": self.client, **shown})

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Unpack the payload. Raises Refusal."""
        asked = unpack_map(raw)
        client, token = asked.get("client"), asked.get("token")
        if not isinstance(client, str):
            raise Refusal.bad("HELLO needs a 'client' of type str")
        if token is not None and not isinstance(token, str):
            raise Refusal.bad("'token' must be of type str")
        return cls(client, token)


@dataclasses.dataclass(frozen=True, slots=True)
class Greeting:
    """The answer to a HELLO: the longest request in bytes, and the server's features, by name."""

    server: str
    max_frame: int
    namespace: str
    features: frozenset[str] = frozenset(Feature)

    def pack(self) -> bytes:
        """The payload of this server's answer."""
        return pack_map(
            {
                "server": self.server,
                "max_frame": self.max_frame,
                "features": list(Feature),
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
            frozenset(map(str, said.get("features", ()))),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    """A CREATE; a queue that is its connection's ``own`` is deleted with the connection."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class List:
    """A LIST, of only the names or of the queues with their counts."""

    only_names: bool = False

    def pack(self) -> bytes:
        """The payload."""
        return pack_map({"names": True}) if self.only_names else b""

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Unpack the payload. Raises Refusal."""
        only_names = unpack_map(raw).get("names") if raw else False
        if not isinstance(only_names, bool):
            raise Refusal.bad("a LIST carries nothing, or 'names', true or false")
        return cls(only_names)


@dataclasses.dataclass(frozen=True, slots=True)
class Select:
    """A PEEK or a REDRIVE: at most ``limit`` messages that match the expression."""

    limit: int
    where: str | None = None

    def pack(self) -> bytes:
        """The payload behind the name."""
        tail = b"" if self.where is None else self.where.encode()
        return HEADS[Type.REDRIVE].pack(self.limit) + tail

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        head = HEADS[Type.REDRIVE]
        if len(rest) < head.size:
            raise Refusal.bad("there must be a name, and a limit of 32 bits")
        (limit,) = head.unpack_from(rest)
        if not limit:
            raise Refusal.bad("limit=0: it must be 1 or more")
        return cls(limit, unpack_expression(rest[head.size :], Where))
