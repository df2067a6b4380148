"""Loads the modules whose operations the table has, and the routes of what is live."""

from __future__ import annotations

import importlib
from typing import Final

from starlette.routing import BaseRoute

from shmq.extras.console.api import events, websocket

#: The nouns of the API; each module registers its operations when it is imported.
MODULES: Final = (
    "overview",
    "queues",
    "messages",
    "leases",
    "streams",
    "records",
    "groups",
    "exchanges",
    "schemas",
)


def load() -> None:
    """Register all operations."""
    for name in MODULES:
        importlib.import_module(f"shmq.extras.console.api.{name}")


def live_routes() -> list[BaseRoute]:
    """The routes of event streams and WebSockets."""
    return [*events.routes(), *websocket.routes()]
