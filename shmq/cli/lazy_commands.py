"""The subcommands: where each is, so that a run loads the one that it needs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Final

import click

__all__ = ["Commands"]

#: The module of each, and its name in there, in the order of a queue's life.
_PLACES: Final = {
    "create": ("create", "create"),
    "produce": ("produce", "produce"),
    "consume": ("consume", "consume"),
    "request": ("request", "request"),
    "publish": ("publish", "publish"),
    "exchange": ("exchange", "exchange"),
    "subscribe": ("subscribe", "subscribe"),
    "worker": ("worker", "worker"),
    "pipeline": ("pipeline", "pipeline"),
    "stream": ("stream.command", "stream"),
    "peek": ("peek", "peek"),
    "list": ("list", "list_queues"),
    "schema": ("schema", "schema"),
    "stats": ("stats", "stats"),
    "who": ("attachments", "who"),
    "top": ("top", "top"),
    "purge": ("delete", "purge"),
    "redrive": ("redrive", "redrive"),
    "delete": ("delete", "delete"),
    "stress": ("stress", "stress"),
    "doctor": ("doctor", "doctor"),
    "fsck": ("fsck", "fsck"),
    "keeper": ("keeper", "keeper"),
    "serve": ("serve", "serve"),
    "persist": ("persist", "persist"),
    "snapshot": ("snapshot", "snapshot"),
    "backup": ("backup", "backup"),
    "restore": ("restore", "restore"),
    "dmsq": ("dmsq", "dmsq"),
    "token": ("token", "token"),
    "ping": ("ping", "ping"),
    "context": ("context", "context"),
    "completion": ("completion", "completion"),
}


class Commands(Mapping[str, click.Command]):
    """The subcommands by name, each loaded when it is first asked for.

    Most of the time that ``shmq`` takes to start is that of its imports.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, attribute = _PLACES[name]
            found = getattr(importlib.import_module(f"shmq.cli.{module}"), attribute)
            self._loaded[name] = found
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)

    def __contains__(self, name: object) -> bool:
        return name in _PLACES
