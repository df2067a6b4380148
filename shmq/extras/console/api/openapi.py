"""The OpenAPI 3.1 page, made from the table of operations."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import shmq
from shmq.extras.cloudevents.message import BATCH, STRUCTURED
from shmq.extras.console.api.operation import OPERATIONS, Operation, Parameter
from shmq.extras.console.api.routes import API, NAMED, encode, unauthorized
from shmq.extras.console.problem import CODES
from shmq.extras.console.request_checks import caller_of
from shmq.native._core import MAX_NAME

#: What `check_name` accepts.
_NAME: Final = r"^(?!\.{1,2}$)[A-Za-z0-9._:-]+$"
_PART: Final = re.compile(r"\{(\w+)\}")
_REF: Final = "#/components/schemas/{name}"
#: What every operation may answer beside its own.
_ALWAYS: Final = (400, 401, 403, 404, 405, 408, 421, 500, 502, 503)
_CHANGES: Final = (409, 410, 413, 415, 422, 429, 501, 507)

#: A CloudEvent in structured mode.
_EVENT: Final = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        **{
            name: {"type": "string", "minLength": 1}
            for name in ("id", "source", "type", "datacontenttype", "dataschema", "subject")
        },
        "time": {"type": "string", "format": "date-time"},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
}
_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": list(CODES)},
        "detail": {"type": "string"},
    },
}


def routes() -> list[Route]:
    """The route of the page."""
    return [Route(f"{API}/openapi.json", _page)]


async def _page(request: Request) -> Response:
    if caller_of(request.app.state.console, request) is None:
        raise unauthorized()
    return Response(_encode_document(), media_type="application/json")


@functools.cache
def _encode_document() -> bytes:
    return encode(document())


def document() -> dict[str, Any]:
    """The page as a map."""
    kinds = [
        kind
        for row in OPERATIONS
        for kind in (row.body, row.schema, row.answer)
        if _has_schema(kind)
    ]
    unique = list(dict.fromkeys(kinds))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    by_kind = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in OPERATIONS:
        paths.setdefault(API + row.path, {})[row.method.lower()] = _describe_operation(row, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "shmq",
            "version": shmq.__version__,
            "description": "Queues, streams and exchanges of one namespace.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _has_schema(kind: Any) -> bool:
    return kind is not None and kind is not bytes


def _describe_operation(row: Operation, by_kind: dict[Any, Any]) -> dict[str, Any]:
    statuses = sorted({*_ALWAYS, *(_CHANGES if row.changes else ()), *row.refusals})
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    good: dict[str, Any] = {"description": "done"}
    if row.answer is bytes:
        good["content"] = {"application/octet-stream": {}}
    elif row.answer is not None:
        good["content"] = {"application/json": {"schema": by_kind[row.answer]}}
    made: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "tags": [row.tag],
        "parameters": _describe_parameters(row),
        "responses": {
            **{str(one): good for one in (row.status, *row.also)},
            **{str(one): {"description": "refused", "content": problem} for one in statuses},
        },
    }
    if row.body is not None:
        schema = by_kind.get(row.schema or row.body, {})
        made["requestBody"] = {
            "required": True,
            "content": {media: _describe_content(media, schema) for media in row.media},
        }
    return made


def _describe_content(media: str, schema: dict[str, Any]) -> dict[str, Any]:
    """What a body of that media type is: of NDJSON each line is such a value."""
    if media == "application/x-ndjson":
        return {"schema": {"type": "string"}, "x-line": schema}
    if media == STRUCTURED:
        return {"schema": _EVENT}
    if media == BATCH:
        return {"schema": {"type": "array", "items": _EVENT}}
    return {"schema": schema}


def _describe_parameters(row: Operation) -> list[dict[str, Any]]:
    declared = {one.name: one for one in row.parameters}
    parts = _PART.findall(row.path)
    rows = [_describe_parameter(declared.get(name, Parameter(name)), "path") for name in parts]
    rows += [_describe_parameter(one, one.place) for one in row.parameters if one.name not in parts]
    if row.changes:
        rows.append(
            {
                "name": "X-Shmq-CSRF",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "any value without tokens; with a cookie, the session's",
            }
        )
    return rows


def _describe_parameter(one: Parameter, place: str) -> dict[str, Any]:
    schema = one.schema()
    if place == "path" and one.name in NAMED:
        schema |= {"pattern": _NAME, "minLength": 1, "maxLength": MAX_NAME}
    return {
        "name": one.name,
        "in": place,
        "required": place == "path" or one.required,
        "schema": schema,
        "description": one.text,
    }
