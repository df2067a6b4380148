"""Attaching to queues and streams by name, for modules that their classes depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmq.namespace.namespace import Namespace

__all__ = ["Opener", "attach", "install"]

#: Attaches to the queue or stream of that name. Raises the matching error if there is none.
Opener = Callable[[Namespace, str], Any]

_openers: dict[str, Opener] = {}


def install(queue: Opener, stream: Opener) -> None:
    """Set the opener of each kind."""
    _openers.update(queue=queue, stream=stream)


def attach(kind: str, namespace: Namespace, name: str) -> Any:
    """Attach to the ``"queue"`` or ``"stream"`` of that name."""
    return _openers[kind](namespace, name)
