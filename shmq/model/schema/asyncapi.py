"""The queues and streams of a namespace as a document of AsyncAPI 3.0."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

#: Its kind, ``queue`` or ``stream``, its name, and its newest schema; None: it has none.
Channel = tuple[str, str, Mapping[str, Any] | None]


def document(
    namespace: str, url: str | None, version: str, channels: Iterable[Channel]
) -> dict[str, Any]:
    """A channel for each queue and stream, with an operation to send to it and one to receive."""
    made: dict[str, Any] = {
        "asyncapi": "3.0.0",
        "info": {"title": namespace, "version": version},
        "defaultContentType": "application/msgpack",
    }
    if url is not None:
        parts = urlsplit(url)
        host = parts.netloc or parts.path
        made["servers"] = {"shmq": {"host": host, "protocol": parts.scheme}}
    made |= {"channels": {}, "operations": {}, "components": {"messages": {}}}
    for kind, name, schema in channels:
        key = f"{kind}_{_make_key(name)}"
        message: dict[str, Any] = {"name": name}
        if schema is not None:
            message["payload"] = {
                "schemaFormat": "application/schema+json;version=draft-2020-12",
                "schema": dict(schema),
            }
        made["components"]["messages"][key] = message
        made["channels"][key] = {
            "address": name,
            "title": f"{kind} {name}",
            "messages": {"body": {"$ref": f"#/components/messages/{key}"}},
        }
        for action in ("send", "receive"):
            made["operations"][f"{action}_{key}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{key}"},
            }
    return made


def _make_key(name: str) -> str:
    """The name as a key of AsyncAPI: letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^A-Za-z0-9.\-_]", lambda found: f"_{ord(found[0]):x}_", name)
