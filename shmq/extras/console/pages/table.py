"""Loads the modules whose pages the console has, and gives the routes of all."""

from __future__ import annotations

import importlib
from typing import Final

from starlette.routing import BaseRoute

from shmq.extras.console.pages.endpoints import page_routes
from shmq.extras.console.pages.login import login_routes

#: The subjects of the pages; each module registers its own when it is imported.
MODULES: Final = (
    "overview",
    "queues",
    "messages",
    "letters",
    "streams",
    "exchanges",
    "host",
    "advice",
    "changes",
)


def routes() -> list[BaseRoute]:
    """The routes of all pages. The operations of the API must have been loaded."""
    for name in MODULES:
        importlib.import_module(f"shmq.extras.console.pages.{name}")
    return [*login_routes(), *page_routes()]
