"""The process of a worker: Django is set up as it is imported, and then runs each task."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import django

import shmq

django.setup()

from shmq.extras.django.backend import ShmqBackend  # noqa: E402 - they import what the
from shmq.extras.django.execution import reject, run  # noqa: E402 - setup has prepared
from shmq.extras.django.framework import InvalidTaskBackend, task_backends  # noqa: E402


def run_task(message: shmq.Message) -> None:
    """Run the task of a message. Raises :class:`~shmq.Reject` for one that cannot be run."""
    body = message.body
    alias = body.get("backend") if isinstance(body, dict) else None
    backend = task_backends[alias] if alias in set(task_backends.settings) else None
    if not isinstance(backend, ShmqBackend):
        known = dict(_backends())
        error = InvalidTaskBackend(
            f"the worker's TASKS have no backend of shmq with the alias {alias!r:.80}, only "
            f"{', '.join(sorted(known))}: add it to the worker's settings"
        )
        raise reject(message, error, *known.values())
    run(backend, message)


def _backends() -> Iterator[tuple[str, ShmqBackend]]:
    """The backends of shmq, by alias; one that cannot be made is left out."""
    for alias in task_backends.settings:
        with contextlib.suppress(Exception):
            backend = task_backends[alias]
            if isinstance(backend, ShmqBackend):
                yield alias, backend
