"""Lists the durable queues and streams of a namespace, and finds their directory."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from shmq.api.names import check_name
from shmq.errors import InvalidOption, NoSuchQueue, NoSuchStream, SegmentError, ShmqError
from shmq.namespace import streams
from shmq.namespace.namespace import Namespace

__all__ = ["directory_of", "durable_queues", "durable_streams"]


def durable_queues(namespace: str, names: Collection[str] = ()) -> list[str]:
    """The names of the durable queues; or ``names`` without repetitions, which must be durable.

    Raises :class:`~shmq.NoSuchQueue`, and :class:`~shmq.InvalidOption` for a queue that is
    only in memory.
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


def durable_streams(namespace: str, names: Collection[str] = ()) -> list[str]:
    """The same of streams. Raises :class:`~shmq.NoSuchStream` and InvalidOption."""
    registry = Namespace.of(namespace)
    if names:
        for name in names:
            if not _is_durable_stream(registry, check_name(name, "stream")):
                raise InvalidOption(
                    f"stream {name!r} has durability='memory', so it is not kept on disk: make "
                    f"it with durability='journal'"
                )
        return list(dict.fromkeys(names))
    found = []
    for name in registry.stream_names():
        with contextlib.suppress(NoSuchStream, SegmentError):
            if _is_durable_stream(registry, name):
                found.append(name)
    return found


def _is_durable_stream(registry: Namespace, name: str) -> bool:
    control, _ = streams.open_stream(registry, name)
    return bool(control.options["durability"] != "memory")


def _is_durable(registry: Namespace, name: str) -> bool:
    try:
        return bool(registry.open_segment(name).options["durability"] != "memory")
    except (NoSuchQueue, SegmentError):
        return False


def directory_of(namespace: str) -> Path:
    """The directory of the namespace's durable queues. Raises ShmqError if it has none."""
    directory = Namespace.of(namespace).data_dir
    if directory is None:
        raise ShmqError(
            f"nobody has written namespace {namespace!r} to disk: start shmq serve or shmq persist"
        )
    return directory
