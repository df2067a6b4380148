"""The schema of a queue or a stream: its versions, a new one, and whether one could be set."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from shmq.extras.console.api.operation import Answer, Call, Parameter, operation, view_as
from shmq.extras.console.problem import Problem
from shmq.model.schema.compare import Compatibility
from shmq.protocol.opcodes import Right

Rule = Literal["none", "backward", "forward", "full"]
assert set(get_args(Rule)) == set(get_args(Compatibility))

_NAME: Final = Parameter("name", "string", "the queue's or the stream's name", most=255)


class SchemaView(msgspec.Struct, frozen=True, kw_only=True):
    """One version."""

    name: str
    version: int
    #: The JSON Schema.
    schema: dict[str, Any]
    #: What it had to be to the versions before it.
    compatibility: str
    #: When it was set, in seconds since 1970.
    at: float


class Schemas(msgspec.Struct, frozen=True, kw_only=True):
    """All versions, oldest first."""

    items: list[SchemaView]


class NewSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A JSON Schema."""

    schema: dict[str, Any]
    #: What it must be to every earlier version; null: as the newest version, or backward.
    compatibility: Rule | None = None


class SetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The number of the version."""

    version: int


@operation("GET", "/schemas/{name}", _NAME, answer=Schemas, tag="schemas")
def list_schemas(call: Call) -> Schemas:
    """Show every version of the schema of a queue or a stream."""
    name = _check_visible(call)
    return Schemas(items=[view_as(SchemaView, one) for one in call.console.broker.schemas(name)])


@operation("GET", "/schemas/{name}/{version}", _NAME,
           Parameter("version", "integer", "its number", None, 1, (1 << 31) - 1),
           answer=SchemaView, tag="schemas")  # fmt: skip
def get_schema(call: Call) -> SchemaView:
    """Show one version."""
    name = _check_visible(call)
    for one in call.console.broker.schemas(name):
        if one.version == call["version"]:
            return view_as(SchemaView, one)
    raise Problem(404, "not-found", f"{name!r} has no version {call['version']} of a schema")


def _check_visible(call: Call) -> str:
    """The name, if the caller has any right to a queue or a stream of it."""
    name: str = call["name"]
    if not (call.caller.sees("queue", name) or call.caller.sees("stream", name)):
        raise Problem(404, "not-found", f"there is neither a queue nor a stream {name!r}")
    return name


@operation("POST", "/schemas/{name}", _NAME, body=NewSchema, answer=SetAnswer, tag="schemas",
           audit="schema.set")  # fmt: skip
def set_schema(call: Call) -> SetAnswer:
    """Make the JSON Schema the newest version; one that equals it changes nothing."""
    name = _check_administered(call)
    asked = call.body
    return SetAnswer(
        version=call.console.broker.set_schema(name, asked.schema, asked.compatibility)
    )


@operation("POST", "/schemas/{name}/check", _NAME, body=NewSchema, tag="schemas", status=204,
           changes=False, refusals=(413, 415, 422))  # fmt: skip
def check_schema(call: Call) -> Answer:
    """Say whether the JSON Schema could be set; set nothing."""
    name = _check_visible(call)
    call.console.broker.check_schema(name, call.body.schema, call.body.compatibility)
    return Answer(status=204)


def _check_administered(call: Call) -> str:
    """The name, if the caller may administer a queue or a stream of it."""
    name = _check_visible(call)
    if not call.caller.may(Right.ADMIN, "queue", name):
        call.need(Right.ADMIN, "stream", name)
    return name
