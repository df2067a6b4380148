"""Which queues of a namespace are durable, and where they are kept."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from shmq.errors import InvalidOption, NoSuchQueue, SegmentError, ShmqError
from shmq.names import check_name
from shmq.registry import Namespace

__all__ = ["directory_of", "durable_queues"]


def durable_queues(namespace: str, names: Collection[str] = ()) -> list[str]:
    """The names of the durable queues, or of those among ``names``, which must be.

    Raises :class:`~shmq.NoSuchQueue`, and :class:`~shmq.InvalidOption` for a queue that is
    kept in memory alone.
    """
    registry = Namespace.of(namespace)
    if names:
        for name in names:
            if registry.open_segment(check_name(name)).options["durability"] == "memory":
                raise InvalidOption(
                    f"queue {name!r} has durability='memory', so it is not kept on disk: make "
                    f"it with durability='snapshot' or 'journal'"
                )
        return list(dict.fromkeys(names))
    return [name for name in registry.queue_names() if _is_durable(registry, name)]


def _is_durable(registry: Namespace, name: str) -> bool:
    try:
        return bool(registry.open_segment(name).options["durability"] != "memory")
    except (NoSuchQueue, SegmentError):
        return False


def directory_of(namespace: str) -> Path:
    """Where its durable queues are written. Raises ShmqError if nobody has written any."""
    directory = Namespace.of(namespace).data_dir
    if directory is None:
        raise ShmqError(
            f"nobody has written namespace {namespace!r} to disk: start shmq serve or shmq persist"
        )
    return directory
