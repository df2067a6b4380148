"""The schemas of a server's queues and streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmq import errors
from shmq.api.schema import SchemaVersion
from shmq.native import _core
from shmq.protocol.messages.payload import pack_map, unpack_answer

__all__ = ["ask", "versions_of"]

#: Sends a SCHEMA request with this map, and returns the answer if it is OK.
Send = Callable[[bytes], _core.Answer]


def ask(send: Send, name: str, **asked: Any) -> dict[str, Any]:
    """The map of the answer. Raises SchemaError if the server refuses the schema."""
    answer = send(pack_map(asked))
    found = unpack_answer(answer)
    if "refused" in found:
        raise errors.SchemaError(str(found["refused"]), name, str(found.get("field", "")))
    return found


def versions_of(name: str, found: dict[str, Any]) -> list[SchemaVersion]:
    """The versions in an answer. Raises ServerError."""
    try:
        return [
            SchemaVersion(name=name, version=version, schema=schema, compatibility=rule, at=at)
            for version, schema, rule, at in found.get("versions", ())
        ]
    except (TypeError, ValueError) as error:
        raise errors.ServerError(
            f"the server's answer about the schema of {name!r} makes no sense: {error}"
        ) from error
