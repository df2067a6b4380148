"""The deaths of a namespace's processes: what the dead held is returned, and sleepers are woken."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from shmq.client.local.temporary_queue import looks_over
from shmq.errors import LockTimeout, ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import late_imports

#: Attaches to a queue, whose class is built on this module.
_Attach = Callable[[Namespace, str], Any]


def are_noticed(namespace: Namespace, attach: _Attach) -> bool:
    """Whether a process watches for deaths from now on, maybe this one: then a sleep may be long.

    To be asked by a thread that has slept for a slice: see shmq/core/queue/wait.h. ``attach``
    opens a queue of the namespace.
    """
    with late_imports:
        from shmq.client.local.waiting import guardian  # noqa: PLC0415 - few processes sleep long

    return guardian.is_kept(namespace, functools.partial(return_all, attach=attach))


def return_all(namespace: Namespace, attach: _Attach) -> bool:
    """Return to all queues and streams what dead processes held; whether nothing is left to return.

    Queues that end with the dead are deleted.
    Those who sleep for a stream or a consumer group of it are woken: the dead process may have had
    to wake them, or they divide its partitions.
    """
    asked: dict[int, bool] = {}
    done = True
    for name in namespace.queue_names():
        with contextlib.suppress(ShmqError, OSError):  # it is gone, full or damaged
            segment = namespace.look_at(name)
            if segment is None:
                continue
            if segment.is_temporary and looks_over(namespace, segment):
                with contextlib.closing(attach(namespace, name)) as queue:
                    queue.look_for_dead()  # deletes it
            elif _has_dead(namespace, segment.processes(), asked):
                with contextlib.closing(attach(namespace, name)) as queue:
                    queue.look_for_dead()
                done = done and not _has_dead(namespace, segment.processes(), asked)
    names = namespace.stream_names()
    if names:
        with late_imports:
            from shmq.client.transaction.recover import look  # noqa: PLC0415 - few have streams

        done = _is_done(look, namespace) and done
    for name in names:
        done = _is_done(_wake_all, namespace, name) and done
    return done


def _is_done(deed: Callable[..., None], *given: object) -> bool:
    """Whether it is done, or never can be: what it is about is gone, or damaged."""
    try:
        deed(*given)
    except LockTimeout:
        return False
    except (ShmqError, OSError):
        return True
    return True


def _wake_all(namespace: Namespace, name: str) -> None:
    """Drop the holds of the dead, and wake all who wait for the stream."""
    with late_imports:
        from shmq.client.local.retention_hold import drop_dead  # noqa: PLC0415 - few have streams
        from shmq.host.namespace import streams  # noqa: PLC0415

    for partition in streams.open_stream(namespace, name)[1]:
        drop_dead(namespace, partition)
        partition.wake_all()


def _has_dead(namespace: Namespace, numbers: set[int], asked: dict[int, bool]) -> bool:
    for number in numbers - asked.keys():
        asked[number] = namespace.processes.is_alive(number)
    return not all(asked[number] for number in numbers)
