"""The process of a worker: Django is set up as it is imported, and then runs each task."""

from __future__ import annotations

import django

import shmq

django.setup()

from shmq.integrations.django.execution import run  # noqa: E402 - what it imports needs the setup
from shmq.integrations.django.framework import task_backends  # noqa: E402

__all__ = ["run_task"]


def run_task(message: shmq.Message) -> None:
    """Run the task of a message. Raises :class:`~shmq.Reject` for one that cannot be run."""
    body = message.body
    alias = body.get("backend") if isinstance(body, dict) else None
    if alias not in task_backends.settings:
        raise shmq.Reject(f"the message is of no backend of TASKS: {alias!r:.80}")
    run(task_backends[alias], message)
