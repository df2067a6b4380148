"""Finds schemas that refer to themselves for the same value: checking a body would never end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shmq.errors import SchemaError
from shmq.model.schema.compare import look_up

#: Keywords whose schemas apply to the same value: with one schema, a list, or a map of them.
_ONE: Final = ("not", "if", "then", "else")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_MAPS: Final = ("dependentSchemas",)


def check_cycles(root: Any) -> None:
    """Raise SchemaError if a schema applies itself again to the same value."""
    settled: set[int] = set()
    for part, at in _iterate_parts(root, ""):
        _follow(part, at, root, [], settled)


def _iterate_parts(schema: Any, at: str) -> Iterator[tuple[Any, str]]:
    """Every part of the schema that may be a schema, and its place."""
    if isinstance(schema, Mapping):
        yield schema, at
        for name, part in schema.items():
            yield from _iterate_parts(part, f"{at}.{name}" if at else str(name))
    elif isinstance(schema, list):
        for i, part in enumerate(schema):
            yield from _iterate_parts(part, f"{at}[{i}]")


def _follow(schema: Any, at: str, root: Any, path: list[int], settled: set[int]) -> None:
    """Follow a schema; ``path``: the ids of the schemas that already apply to the value."""
    if not isinstance(schema, Mapping) or id(schema) in settled:
        return
    if id(schema) in path:
        raise SchemaError(
            f"the schema refers to itself{f' at {at!r}' if at else ''} without a field or an "
            f"item in between, so no body can be checked by it",
            field=at,
        )
    path.append(id(schema))
    for part in _list_subschemas(schema, root):
        _follow(part, at, root, path, settled)
    path.pop()
    settled.add(id(schema))


def _list_subschemas(schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    """The schemas that it applies to the same value."""
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
