"""Making a queue anew from what its files hold."""

from __future__ import annotations

from shmq.errors import FileError, ShmqError
from shmq.options import QueueOptions
from shmq.persistence.chain import Chain
from shmq.registry import Namespace

__all__ = ["rebuild"]


def rebuild(registry: Namespace, name: str, chain: Chain, *, logged: bool) -> None:
    """Make the queue ``name`` with what ``chain`` holds. Needs the registry lock.

    Nobody can attach to it before it is whole; whoever dies here leaves something half made,
    which the next comer clears away. ``logged``: the files are the queue's own, and its
    journal goes on behind them; else all of it is new to the writer. Raises NoSpace,
    ShmqError.
    """
    try:
        options = QueueOptions(**chain.options)
    except (TypeError, ValueError) as error:
        raise FileError(
            f"the options in the files of queue {name!r} are not those of this shmq ({error}): "
            f"use the shmq that wrote them, or a newer one"
        ) from error
    segment = registry.make_segment(name, options, hash_key=chain.hash_key, publish=False)
    try:
        chain.restore(segment, logged)
    except ShmqError:
        registry.remove_segment(name)
        raise
