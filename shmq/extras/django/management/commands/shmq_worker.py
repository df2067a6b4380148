"""``manage.py shmq_worker``: runs the tasks of a backend."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from shmq.api.names import chosen_namespace, is_url
from shmq.errors import ShmqError
from shmq.extras.django.backend import ShmqBackend
from shmq.extras.django.framework import task_backends
from shmq.host.supervision.stderr import show_on_stderr
from shmq.lazy_imports import late_imports
from shmq.workers.plan import Plan
from shmq.workers.supervisor import Supervisor

#: What every process calls for each message.
_HANDLER: Final = "shmq.extras.django.process:run_task"


class Command(BaseCommand):
    """Runs the tasks of a backend in processes, until it is stopped."""

    help = (
        "Run the tasks of a backend of TASKS. SIGTERM and Ctrl-C let the current tasks come to "
        "their end; a second one does not. A process that dies is replaced."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The flags of the command."""
        parser.add_argument("--backend", default="default", help="The alias in TASKS.")
        parser.add_argument(
            "--queue", action="append", help="A queue to serve; repeat it. [default: all of QUEUES]"
        )
        parser.add_argument("--processes", type=int, default=1, help="Processes for each queue.")
        parser.add_argument(
            "--timeout", type=float, help="End a process that takes longer for a task, in seconds."
        )
        parser.add_argument("--max-tasks", type=int, help="Replace a process after so many tasks.")
        parser.add_argument(
            "--idle-timeout", type=float, help="End when no task came for so many seconds."
        )
        parser.add_argument(
            "--drain-timeout", type=float, help="How long current tasks may take at the end."
        )

    def handle(self, *_: Any, **given: Any) -> None:
        """Run the workers. Raises CommandError."""
        backend = _find_backend(given["backend"])
        show_on_stderr("shmq.workers")
        try:
            plans = [
                _plan(backend, name, given) for name in _choose_queues(backend, given["queue"])
            ]
            Supervisor(plans, given["drain_timeout"]).run()
        except ShmqError as error:
            raise CommandError(str(error)) from error


def _find_backend(alias: str) -> ShmqBackend:
    if alias not in task_backends.settings:
        raise CommandError(f"TASKS has no backend {alias!r}: it has {', '.join(_list_aliases())}")
    backend = task_backends[alias]
    if not isinstance(backend, ShmqBackend):
        raise CommandError(f"the backend {alias!r} is a {type(backend).__name__}, not of shmq")
    return backend


def _list_aliases() -> Iterable[str]:
    return sorted(task_backends.settings)


def _choose_queues(backend: ShmqBackend, asked: list[str] | None) -> list[str]:
    known = sorted(backend.queues)
    unknown = [name for name in asked or [] if known and name not in known]
    if unknown:
        raise CommandError(f"queue {unknown[0]!r} is none of QUEUES: {', '.join(known)}")
    if not asked and not known:
        raise CommandError("QUEUES of the backend is empty: name the queues with --queue")
    return asked or known


def _plan(backend: ShmqBackend, name: str, given: dict[str, Any]) -> Plan:
    """The plan of a queue, which is made if it does not exist."""
    options = backend.shmq
    place: dict[str, Any] = {}
    url = options.target if options.target is not None else os.environ.get("SHMQ_URL") or None
    if url is not None and is_url(url):
        with late_imports:
            from shmq.client.remote.address import Target  # noqa: PLC0415 - with a server alone

        place["server"] = Target.of(url, options.token, options.tls, 5.0, 30.0)
    else:
        place["namespace"] = chosen_namespace(options.target)
    return Plan(
        handler=_HANDLER,
        queue=backend.place.queue(name).name,
        processes=given["processes"],
        timeout=given["timeout"],
        max_messages=given["max_tasks"],
        idle_timeout=given["idle_timeout"],
        **place,
    )
