"""Schemas that refer to themselves for one and the same value: no body could ever be checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shmq.errors import SchemaError
from shmq.schema.compare import look_up

__all__ = ["check_cycles"]

#: Keywords whose schemas are asked about the value itself: one, a list, and a map of them.
_ONE: Final = ("not", "if", "then", "else")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_MAPS: Final = ("dependentSchemas",)


def check_cycles(root: Any) -> None:
    """Raise SchemaError where a schema, asked about a value, comes to ask itself about it."""
    settled: set[int] = set()
    for part, at in _parts(root, ""):
        _follow(part, at, root, [], settled)


def _parts(schema: Any, at: str) -> Iterator[tuple[Any, str]]:
    """Everything in the schema that may be one, and where."""
    if isinstance(schema, Mapping):
        yield schema, at
        for name, part in schema.items():
            yield from _parts(part, f"{at}.{name}" if at else str(name))
    elif isinstance(schema, list):
        for i, part in enumerate(schema):
            yield from _parts(part, f"{at}[{i}]")


def _follow(schema: Any, at: str, root: Any, path: list[int], settled: set[int]) -> None:
    """``path``: the schemas that are asked about the value already, by their ids."""
    if not isinstance(schema, Mapping) or id(schema) in settled:
        return
    if id(schema) in path:
        raise SchemaError(
            f"the schema refers to itself{f' at {at!r}' if at else ''} without a field or an "
            f"item in between, so no body can be checked by it",
            field=at,
        )
    path.append(id(schema))
    for part in _asked(schema, root):
        _follow(part, at, root, path, settled)
    path.pop()
    settled.add(id(schema))


def _asked(schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    """The schemas that it asks about the same value."""
    if isinstance(schema.get("$ref"), str):
        yield look_up(schema["$ref"], root)
    for word in _ONE:
        yield schema.get(word)
    for word in _LISTS:
        parts = schema.get(word)
        yield from parts if isinstance(parts, list) else ()
    for word in _MAPS:
        parts = schema.get(word)
        yield from parts.values() if isinstance(parts, Mapping) else ()
