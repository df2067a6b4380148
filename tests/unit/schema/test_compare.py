"""Whether one JSON Schema can follow another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shmq.model.schema.compare import problem_between, unreadable

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}


def record(*required: str, more: bool = True, **fields: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": fields, "required": list(required)}
    return schema if more else {**schema, "additionalProperties": False}


#: What the reader has, what the writer has, and the field that the reader cannot read.
PAIRS: dict[str, tuple[Any, Any, str | None]] = {
    "the same": (record("a", a=TEXT), record("a", a=TEXT), None),
    "anything": ({}, record("a", a=TEXT), None),
    "a field more, optional": (record("a", a=TEXT, b=WHOLE), record("a", a=TEXT), None),
    "a field more, required": (record("a", "b", a=TEXT, b=WHOLE), record("a", a=TEXT), "b"),
    "a field less": (record(), record("a", a=TEXT), None),
    "a field less, closed": (record(more=False), record("a", a=TEXT), "a"),
    "a field of another type": (record(a=WHOLE), record(a=TEXT), "a"),
    "a wider type": (record(a={"type": "number"}), record(a=WHOLE), None),
    "a narrower type": (record(a=WHOLE), record(a={"type": "number"}), "a"),
    "no type any more": (record(a={}), record(a=TEXT), None),
    "a type where was none": (record(a=TEXT), record(a={}), "a"),
    "may be null now": (record(a={"type": ["string", "null"]}), record(a=TEXT), None),
    "may be null no more": (record(a=TEXT), record(a={"type": ["string", "null"]}), "a"),
    "an alternative more": (record(a={"anyOf": [TEXT, WHOLE]}), record(a=TEXT), None),
    "an alternative less": (record(a=TEXT), record(a={"anyOf": [TEXT, WHOLE]}), "a"),
    "types as alternatives": (
        record(a={"anyOf": [TEXT, WHOLE]}), record(a={"type": ["string", "integer"]}), None,
    ),
    "a value more": (record(a={"enum": [1, 2, 3]}), record(a={"enum": [1, 2]}), None),
    "a value less": (record(a={"enum": [1]}), record(a={"enum": [1, 2]}), "a"),
    "values where was a type": (record(a={"enum": ["x"]}), record(a=TEXT), "a"),
    "a type where were values": (record(a=TEXT), record(a={"enum": ["x"]}), None),
    "another constant": (record(a={"const": 1}), record(a={"const": True}), "a"),
    "a lower least": (record(a={"minimum": 1}), record(a={"minimum": 2}), None),
    "a higher least": (record(a={"minimum": 2}), record(a={"minimum": 1}), "a"),
    "a greater most": (record(a={"maxLength": 9}), record(a={"maxLength": 8}), None),
    "a most where was none": (record(a={"maxLength": 9}), record(a=TEXT), "a"),
    "within a list": (
        record(a={"type": "array", "items": record("b", b=WHOLE)}),
        record(a={"type": "array", "items": record("b", b=TEXT)}),
        "a[].b",
    ),
    "within a map": (record(a=record("b", b=WHOLE)), record(a=record(b=WHOLE)), "a.b"),
    "another pattern": (record(a={"pattern": "a"}), record(a={"pattern": "b"}), "a"),
    "the same pattern": (record(a={"pattern": "a"}), record(a={"pattern": "a"}), None),
    "another description": (record(a={"description": "x"}), record(a=TEXT), None),
    "all of the same": (record(a={"allOf": [TEXT]}), record(a=TEXT), None),
    "all of another": (record(a={"allOf": [WHOLE]}), record(a=TEXT), "a"),
    "written as all of": (record(a=TEXT), record(a={"allOf": [TEXT]}), None),
    "not allowed": (record(a=False), record(a=TEXT), "a"),
    "never written": (record(a=TEXT), record(a=False), None),
    "others of a type": (
        {"type": "object", "additionalProperties": WHOLE}, record(a=TEXT), "a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_what_a_reader_can_read(pair: str) -> None:
    reader, writer, field = PAIRS[pair]

    found = unreadable(reader, writer)

    assert (None if found is None else found.field) == field, found


def test_backward_forward_and_full_are_directions() -> None:
    old, wider = record("a", a=TEXT), record(a=TEXT)

    assert problem_between(wider, old, "none") is None
    assert problem_between(wider, old, "backward") is None
    assert problem_between(old, wider, "forward") is None
    for rule, new, before in (
        ("forward", wider, old),
        ("backward", old, wider),
        ("full", wider, old),
        ("full", old, wider),
    ):
        found = problem_between(new, before, rule)
        assert found is not None and found.field == "a"


def test_a_schema_may_refer_to_itself() -> None:
    def tree(value: dict[str, Any]) -> dict[str, Any]:
        node = record("value", value=value, next={"$ref": "#/$defs/node"})
        return {"$ref": "#/$defs/node", "$defs": {"node": node}}

    assert unreadable(tree(TEXT), tree(TEXT)) is None
    found = unreadable(tree(WHOLE), tree(TEXT))
    assert found is not None and found.field == "value"


@pytest.mark.parametrize("reference", ["#/$defs/no", "https://example.org/a.json", 7])
def test_a_reference_that_leads_nowhere_is_refused(reference: object) -> None:
    with pytest.raises(ValueError, match="reference"):
        unreadable({"$ref": reference}, record(a=TEXT))


class Street(msgspec.Struct):
    name: str


class Old(msgspec.Struct):
    id: int
    street: Street | None = None


class New(msgspec.Struct):
    id: int
    street: Street | None = None
    note: str | None = None


class Broken(msgspec.Struct):
    id: str
    street: Street | None = None


def test_structs_are_compared_by_their_json_schemas() -> None:
    old, new, broken = (msgspec.json.schema(kind) for kind in (Old, New, Broken))

    assert problem_between(new, old, "full") is None
    found = problem_between(broken, old, "backward")
    assert found is not None
    assert (found.field, "integer" in found.what) == ("id", True)
