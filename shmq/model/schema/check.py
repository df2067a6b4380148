"""Checks of schemas, and of bodies against a schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from shmq.errors import InvalidOption, SchemaError, ShmqError
from shmq.lazy_imports import late_imports
from shmq.model.schema.compare import look_up
from shmq.model.schema.cycles import check_cycles

#: The longest schema, as JSON, in bytes.
LONGEST: Final = 1 << 18

#: Raises SchemaError for a body that the schema does not allow.
Check = Callable[[Any], None]


def as_json_schema(schema: Any) -> dict[str, Any]:
    """The JSON Schema: a map as is, or the schema of a msgspec Struct or other type.

    Raises :class:`~shmq.InvalidOption` for an invalid JSON Schema,
    :class:`~shmq.SchemaError` for one with cyclic references, and TypeError.
    """
    if isinstance(schema, Mapping):
        found = dict(schema)
    elif isinstance(schema, type):
        found = _generate_schema(schema)
    else:
        raise TypeError(
            f"schema={schema!r:.60} must be a JSON Schema, as a map, or a type such as a "
            f"msgspec.Struct"
        )
    return check_schema(found)


def _generate_schema(kind: type) -> dict[str, Any]:
    try:
        with late_imports:
            import msgspec  # noqa: PLC0415 - of the extra "schemas"
    except ImportError as error:
        raise _make_not_installed("msgspec") from error
    try:
        return msgspec.json.schema(kind)
    except TypeError as error:
        raise InvalidOption(f"type {kind.__name__!r} has no JSON Schema: {error}") from error


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema if it is a JSON Schema. Raises what `as_json_schema` raises."""
    jsonschema = _load_jsonschema()
    try:
        packed = json.dumps(schema, allow_nan=False)
        plain: dict[str, Any] = json.loads(packed)
        jsonschema.validators.validator_for(plain, _load_draft()).check_schema(plain)
        _check_references(plain, plain)
        check_cycles(plain)
        msgpack.packb(plain)  # as it is stored: a number has at most 64 bits
    except jsonschema.SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        at = f" at {where!r}" if where else ""
        raise InvalidOption(f"that is not a JSON Schema{at}: {error.message:.200}") from error
    except SchemaError:
        raise
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidOption(f"that is not a JSON Schema: {error}") from error
    if len(packed) > LONGEST:
        raise InvalidOption(f"the schema has {len(packed)} bytes, and may have {LONGEST}")
    return plain


def _check_references(schema: Any, root: Any) -> None:
    """Raise ValueError for a reference without a target within the schema."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            look_up(schema["$ref"], root)
        for part in schema.values():
            _check_references(part, root)
    elif isinstance(schema, list):
        for part in schema:
            _check_references(part, root)


def checker(name: str, version: int, schema: Mapping[str, Any]) -> Check:
    """A function that checks bodies against this version of the schema of ``name``."""
    jsonschema = _load_jsonschema()
    # References only lead into the schema itself: nothing is fetched.
    registry = _make_empty_registry()
    validator = jsonschema.validators.validator_for(schema, _load_draft())(
        schema, registry=registry
    )
    return functools.partial(_check, validator, name, version)


def _check(validator: Any, name: str, version: int, body: Any) -> None:
    try:
        errors = sorted(validator.iter_errors(body), key=lambda error: len(error.absolute_path))
    except RecursionError:
        raise SchemaError(
            f"a body for {name!r} cannot be checked by version {version} of its schema: it is "
            f"nested too deep",
            name,
        ) from None
    if not errors:
        return
    field, what = _find_field(errors[0])
    place = f"field {field!r}" if field else "the body"
    raise SchemaError(
        f"a body for {name!r} is not as version {version} of its schema says: {place}: {what}",
        name,
        field,
    )


def _find_field(error: Any) -> tuple[str, str]:
    """The field of an error, and what is wrong; also names a missing or a forbidden field."""
    steps = list(error.absolute_path)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return _format_path([*steps, missing[0]]), "it is required, and missing"
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema.get("properties", {})
        more = [name for name in error.instance if name not in known]
        return _format_path([*steps, *more[:1]]), "it is not allowed"
    return _format_path(steps), f"{error.message:.200}"


def _format_path(steps: list[Any]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _load_jsonschema() -> Any:
    try:
        with late_imports:
            import jsonschema  # noqa: PLC0415 - of the extra "schemas"
    except ImportError as error:
        raise _make_not_installed("jsonschema") from error
    return jsonschema


def _load_draft() -> Any:
    return _load_jsonschema().Draft202012Validator


def _make_empty_registry() -> Any:
    with late_imports:
        import referencing  # noqa: PLC0415 - of the extra "schemas": jsonschema's own

    return referencing.Registry()


def _make_not_installed(what: str) -> ShmqError:
    return ShmqError(f"schemas take {what}, which is not installed: pip install 'shmq[schemas]'")
