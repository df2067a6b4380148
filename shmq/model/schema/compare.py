"""Decides whether a reader with one JSON Schema can read what was written with another.

Only the schemas are compared. Fields that a schema does not name count as not written under
it. A keyword that is not understood here must have the same value in both schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

#: The rule that a new version of a schema must satisfy.
Compatibility = Literal["none", "backward", "forward", "full"]
RULES: Final[tuple[Compatibility, ...]] = ("none", "backward", "forward", "full")

#: Keywords that do not affect validity.
_NOTES: Final = frozenset(
    {
        "$schema", "$id", "$comment", "$defs", "$anchor", "definitions", "title", "description",
        "default", "examples", "deprecated", "readOnly", "writeOnly", "format",
    }
)  # fmt: skip
_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_KNOWN: Final = frozenset(
    {
        *_NOTES, *_LEAST, *_MOST, "$ref", "type", "enum", "const", "properties", "required",
        "additionalProperties", "items", "anyOf", "oneOf", "allOf",
    }
)  # fmt: skip

#: The types of msgpack and JSON values.
_TYPES: Final = frozenset({"null", "boolean", "number", "integer", "string", "array", "object"})

#: How many references are followed for one schema.
_MOST_REFERENCES: Final = 64


class Problem(NamedTuple):
    """Why a reader cannot read what the writer wrote."""

    #: The place: ``address.street``, ``items[].price``; empty for the whole.
    field: str
    what: str

    def __str__(self) -> str:
        return f"field {self.field!r}: {self.what}" if self.field else self.what


def problem_between(new: Mapping[str, Any], old: Mapping[str, Any], rule: str) -> Problem | None:
    """The first reason why ``new`` may not follow ``old`` under the rule.

    ``backward``: the new schema reads what was written with the old one; ``forward``: the old
    one reads what is written with the new one; ``full``: both.
    """
    if rule in ("backward", "full"):
        found = unreadable(new, old)
        if found is not None:
            return found
    if rule in ("forward", "full"):
        found = unreadable(old, new)
        if found is not None:
            return Problem(found.field, f"for readers of the old version, {found.what}")
    return None


def unreadable(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> Problem | None:
    """The first reason why the reader cannot read what the writer writes; None: it can."""
    return next(_Pair(reader, writer).problems(reader, writer, ""), None)


class _Pair:
    """Two complete schemas, in which references are looked up."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader = reader
        self._writer = writer
        #: The parts being compared, by their ids; the references keep the ids valid.
        self._under_way: dict[tuple[int, int], object] = {}

    def problems(self, reader: Any, writer: Any, at: str) -> Iterator[Problem]:
        """Every reason why this part of the reader cannot read that of the writer."""
        reader, writer = _resolve(reader, self._reader), _resolve(writer, self._writer)
        if reader is True or reader == {} or writer is False:
            return
        if not isinstance(reader, Mapping) or not isinstance(writer, Mapping):
            if reader is False:
                yield Problem(at, "nothing is allowed there any more")
            else:
                yield from self._compare_rules(reader, {}, at)
            return
        key = (id(reader), id(writer))
        if key in self._under_way:
            return  # a recursive schema: this comparison is already under way
        self._under_way[key] = reader, writer
        try:
            yield from self._compare_branches(reader, writer, at)
        finally:
            del self._under_way[key]

    def _compare_branches(self, reader: Any, writer: Any, at: str) -> Iterator[Problem]:
        """Alternatives: each of the writer's must be readable by one of the reader's."""
        writer = _spread(writer) if "anyOf" in reader or "oneOf" in reader else writer
        for word in ("anyOf", "oneOf"):
            if word in writer:
                rest = {key: value for key, value in writer.items() if key != word}
                for branch in writer[word]:
                    yield from self.problems(reader, _merge(rest, branch, self._writer), at)
                return
        for word in ("anyOf", "oneOf"):
            if word in reader:
                yield from self._compare_alternatives(reader, word, writer, at)
                return
        if "allOf" in writer and reader.get("allOf") != writer["allOf"]:
            merged = {key: value for key, value in writer.items() if key != "allOf"}
            for part in writer["allOf"]:
                merged = _merge(merged, part, self._writer)
            yield from self.problems(reader, merged, at)
            return
        for part in reader.get("allOf", ()):
            if writer.get("allOf") != reader["allOf"]:
                yield from self.problems(part, writer, at)
        yield from self._compare_rules(reader, writer, at)

    def _compare_alternatives(
        self, reader: Any, word: str, writer: Any, at: str
    ) -> Iterator[Problem]:
        rest = {key: value for key, value in reader.items() if key != word}
        yield from self.problems(rest, writer, at)
        if reader[word] == writer.get(word):
            return
        found = [list(self.problems(branch, writer, at)) for branch in reader[word]]
        if all(found):
            deepest = max((each[0] for each in found), key=lambda problem: len(problem.field))
            yield (
                deepest
                if deepest.field != at
                else Problem(at, f"it is none of the {len(found)} that are allowed")
            )

    # ---- one schema without alternatives ----

    def _compare_rules(self, reader: Any, writer: Any, at: str) -> Iterator[Problem]:
        missing = (
            _compare_values(reader, writer)
            or _compare_types(reader, writer)
            or _compare_bounds(reader, writer)
        )
        if missing is not None:
            yield Problem(at, missing)
            return
        if "object" in _list_types(writer):
            yield from self._compare_objects(reader, writer, at)
        if "array" in _list_types(writer) and "items" in reader:
            yield from self.problems(reader["items"], writer.get("items", True), f"{at}[]")
        for word in sorted(reader.keys() - _KNOWN):
            if reader[word] != writer.get(word):
                yield Problem(at, f"{word!r} is not as it was, and is not compared")

    def _compare_objects(self, reader: Any, writer: Any, at: str) -> Iterator[Problem]:
        written, read = writer.get("properties", {}), reader.get("properties", {})
        always = set(writer.get("required", ()))
        for name in reader.get("required", ()):
            if name not in always:
                yield Problem(_join(at, name), "it is required, and is not always written")
        more = reader.get("additionalProperties", True)
        for name, value in written.items():
            if name in read:
                yield from self.problems(read[name], value, _join(at, name))
            elif more is False:
                yield Problem(_join(at, name), "it is written, and not allowed")
            else:
                yield from self.problems(more, value, _join(at, name))
        others = writer.get("additionalProperties", False)
        if isinstance(others, Mapping) and more is not True:
            yield from self.problems(more, others, _join(at, "*"))


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _resolve(schema: Any, root: Any) -> Any:
    """The schema with its reference, if any, followed. Raises ValueError if that fails."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema
        found = look_up(schema["$ref"], root)
        rest = {key: value for key, value in schema.items() if key not in ("$ref", *_NOTES)}
        schema = found if not rest else {**rest, "allOf": [*rest.get("allOf", ()), found]}
    raise ValueError("its references lead nowhere")


def look_up(reference: Any, root: Any) -> Any:
    """The target of a reference within the schema ``root``. Raises ValueError."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise ValueError(f"the reference {reference!r:.80} leads out of the schema")
    found = root
    for step in filter(None, reference[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            raise ValueError(f"the reference {reference!r:.80} leads nowhere")
    return found


def _merge(one: Any, other: Any, root: Any) -> Any:
    """An approximate schema of what is valid under both."""
    one, other = _resolve(one, root), _resolve(other, root)
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return other if one is True else one if other is True else False
    merged = {**one, **other}
    if "properties" in one and "properties" in other:
        merged["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        merged["required"] = [*one["required"], *other["required"]]
    if "type" in one and "type" in other:
        merged["type"] = sorted(_list_types(one) & _list_types(other))
    return merged


def _spread(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Several types as alternatives, so that each can match one of the reader's."""
    kinds = schema.get("type")
    if not isinstance(kinds, list) or len(kinds) < 2 or "anyOf" in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "type"}
    return {**rest, "anyOf": [{"type": kind} for kind in kinds]}


def _list_types(schema: Mapping[str, Any]) -> frozenset[str]:
    found = schema.get("type")
    if found is None:
        return _TYPES
    return frozenset([found] if isinstance(found, str) else found)


def _compare_types(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> str | None:
    if "type" not in reader or "const" in writer or "enum" in writer:
        return None
    allowed = _list_types(reader)
    if "number" in allowed:
        allowed |= {"integer"}
    more = _list_types(writer) - allowed
    if not more:
        return None
    permitted = _format_types(_list_types(reader))
    return f"it may be of type {_format_types(more)}, and {permitted} is allowed"


def _format_types(types: frozenset[str]) -> str:
    return " or ".join(sorted(types)) if types != _TYPES else "any"


def _compare_values(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> str | None:
    """The problem, if any, with values that the reader or the writer enumerates."""
    written = _list_values(writer)
    allowed = _list_values(reader)
    if written is None:
        return None if allowed is None else "not everything that may be written is listed"
    if allowed is None:
        types = _list_types(reader)
        wrong = [value for value in written if not _is_of(value, types)]
    else:
        wrong = [value for value in written if not any(_is_same(value, each) for each in allowed)]
    return f"{wrong[0]!r:.60} may be written, and is not allowed" if wrong else None


def _list_values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return None if found is None else list(found)


def _is_same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _is_of(value: Any, types: frozenset[str]) -> bool:
    if isinstance(value, bool) or value is None:
        return ("null" if value is None else "boolean") in types
    if isinstance(value, int | float):
        return "number" in types or ("integer" in types and value == int(value))
    kinds: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return kinds.get(type(value)) in types


def _compare_bounds(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> str | None:
    if "enum" in writer or "const" in writer:
        return None
    for words, beyond in ((_LEAST, min), (_MOST, max)):
        for word in words:
            bound = reader.get(word)
            if bound is None:
                continue
            other = writer.get(word)
            if other is None or (other != bound and beyond(other, bound) == other):
                was = "none" if other is None else other
                return f"{word} is {bound}, and was {was}"
    return None
