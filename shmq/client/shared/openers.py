"""How queues and streams are attached to by name, for those whom they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmq.namespace.namespace import Namespace

__all__ = ["Opener", "attach", "install"]

#: Attaches to what the namespace has of that name. Raises what there is to say of none.
Opener = Callable[[Namespace, str], Any]

_openers: dict[str, Opener] = {}


def install(queue: Opener, stream: Opener) -> None:
    """Set how each is done."""
    _openers.update(queue=queue, stream=stream)


def attach(kind: str, namespace: Namespace, name: str) -> Any:
    """Attach to the ``"queue"`` or ``"stream"`` of that name."""
    return _openers[kind](namespace, name)
