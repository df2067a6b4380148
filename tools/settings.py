"""Writes the JSON schema of serve.toml: ``python tools/settings.py``.

It is made from the classes of the settings, their types, their rows of options and the comments on
their fields. It is checked in, as deploy/serve.schema.json; a test compares.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from pathlib import Path
from typing import Any, Final

from shmq.host.supervision.stderr import LOG_FORMATS
from shmq.server.config.settings import LEVELS, MAX_WORKERS, Limits, Quota, Settings
from shmq.server.config.tls import Tls
from shmq.server.config.tokens import Token

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = ROOT / "deploy/serve.schema.json"

#: What the types do not say.
_MORE: Final[dict[tuple[type, str], dict[str, Any]]] = {
    (Settings, "port"): {"minimum": 0, "maximum": 65_535},
    (Settings, "workers"): {"minimum": 1, "maximum": MAX_WORKERS},
    (Settings, "log_level"): {"enum": list(LEVELS)},
    (Settings, "log_format"): {"enum": list(LOG_FORMATS)},
    (Token, "hash"): {"pattern": "^sha256:[0-9a-f]{64}$"},
}

_PLAIN: Final = {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean"}


def made() -> str:
    """The text of the file."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The settings of shmq serve",
        **_table(Settings),
    }
    row = schema["properties"]["tokens"]["items"]
    row["properties"]["credential"] = {
        "type": "string",
        "description": "The credential of the service that holds the token, in place of the hash.",
    }
    row["required"] = ["name"]
    row["oneOf"] = [{"required": ["hash"]}, {"required": ["credential"]}]
    return json.dumps(schema, indent=2) + "\n"


def _table(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    told = _comments(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        found = {**_value(hints[field.name]), **_MORE.get((kind, field.name), {})}
        option = field.metadata.get("option")
        if option is not None:
            found |= {"description": option.text}
            found |= {} if option.least is None else {"minimum": option.least}
            found |= {} if option.most is None else {"maximum": option.most}
        elif field.name in told:
            found["description"] = told[field.name]
        properties[field.name] = found
    required = [field.name for field in dataclasses.fields(kind) if _is_needed(field)]
    more = {"required": required} if required else {}
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


def _value(hint: Any) -> dict[str, Any]:
    """The schema of a value of that type; TOML has no null."""
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint in {Limits, Quota, Tls}:
        return _table(hint)
    item = typing.get_args(hint)[0]
    return {"type": "array", "items": _table(item) if item is Token else _value(item)}


def _comments(kind: type[Any]) -> dict[str, str]:
    """What stands above each field, after ``#:``."""
    found = re.findall(r"((?: +#: .*\n)+) +(\w+):", inspect.getsource(kind))
    return {
        name: re.sub(r"\s+", " ", text.replace("#:", "")).replace("``", "`").strip()
        for text, name in found
    }


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def main() -> None:
    """Write it anew."""
    FILE.write_text(made())


if __name__ == "__main__":
    main()
