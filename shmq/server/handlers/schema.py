"""Requests about the schemas of a queue or a stream."""

from __future__ import annotations

from typing import Any, Final, get_args

from shmq.api.options import check_one_of
from shmq.client.local.broker import LocalBroker
from shmq.errors import InvalidOption, SchemaError
from shmq.schema.compare import Compatibility

__all__ = ["changes", "schema_answer"]

_ACTIONS: Final = ("get", "set", "check")
_RULES: Final = get_args(Compatibility)


def changes(asked: dict[str, Any]) -> bool:
    """Whether a SCHEMA request with this map sets a schema. Raises InvalidOption."""
    action = asked.get("action")
    if action not in _ACTIONS:
        raise InvalidOption(f"'action' must be one of {', '.join(_ACTIONS)}, not {action!r:.40}")
    return bool(action == "set")


def schema_answer(broker: LocalBroker, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The map of the answer. It also says why a schema is refused, and for which field.

    Raises InvalidOption, NoSuchQueue, and the errors of the schema file.
    """
    if asked["action"] == "get":
        return {
            "versions": [
                [each.version, each.schema, each.compatibility, each.at]
                for each in broker.schemas(name)
            ]
        }
    schema, rule = asked.get("schema"), asked.get("compatibility")
    if not isinstance(schema, dict):
        raise InvalidOption("it needs a 'schema', a map")
    if rule is not None:
        check_one_of("compatibility", rule, _RULES)
    try:
        if changes(asked):
            return {"version": broker.set_schema(name, schema, rule)}
        broker.check_schema(name, schema, rule)
    except SchemaError as error:
        return {"refused": str(error), "field": error.field}
    return {}
