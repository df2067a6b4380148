"""The schemas of a server's queues and streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from shmq import errors
from shmq.api.schema import SchemaVersion
from shmq.native import _core

__all__ = ["ask", "versions_of"]

#: Sends a SCHEMA with this map, and returns the answer if it is OK.
Send = Callable[[bytes], _core.Answer]


def ask(send: Send, name: str, **asked: Any) -> dict[str, Any]:
    """The map of the answer. Raises SchemaError where the server refuses the schema."""
    answer = send(msgpack.packb(asked))
    found = msgpack.unpackb(answer.payload or b"\x80", strict_map_key=False)
    if not isinstance(found, dict):
        raise errors.ServerError(f"the server's answer about the schema of {name!r} is no map")
    if "refused" in found:
        raise errors.SchemaError(str(found["refused"]), name, str(found.get("field", "")))
    return found


def versions_of(name: str, found: dict[str, Any]) -> list[SchemaVersion]:
    """The versions that an answer tells. Raises ServerError."""
    try:
        return [
            SchemaVersion(name=name, version=version, schema=schema, compatibility=rule, at=at)
            for version, schema, rule, at in found.get("versions", ())
        ]
    except (TypeError, ValueError) as error:
        raise errors.ServerError(
            f"the server's answer about the schema of {name!r} makes no sense: {error}"
        ) from error
