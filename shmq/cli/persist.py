"""``shmq persist``: recover durable queues, and write them, without a server."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import click

from shmq.cli.flags import data_dir_flag
from shmq.cli.target import target_of
from shmq.persistence.process import Persistence
from shmq.processes.lines import show_on_stderr
from shmq.processes.signals import caught
from shmq.server.notify import Manager
from shmq.server.settings import LEVELS

__all__ = ["persist"]

log = logging.getLogger("shmq")


@click.command(short_help="Keep durable queues on disk, without a server.")
@data_dir_flag
@click.option("-l", "--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.pass_context
def persist(context: click.Context, data_dir: Path | None, log_level: str) -> None:
    """Bring back the durable queues of a namespace, and write them until SIGTERM or Ctrl-C.

    shmq serve does this, too; this is for a host that serves nobody else. At its end the
    last snapshots are written; a second signal ends it at once.
    """
    namespace = target_of(context).namespace
    log.handlers.clear()
    show_on_stderr("shmq", logging.getLevelNamesMapping()[log_level.upper()])
    persistence = Persistence(namespace, data_dir)
    manager = Manager()
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        if len(heard) > 1 and started:
            # Its threads would be waited for; and it may be killed at any moment anyway.
            os._exit(128 + number)
        if len(heard) > 1 or not started:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        manager.stopping()
        persistence.stop()

    def begun() -> None:
        log.info("keeping the durable queues of namespace %r", namespace)
        manager.ready(f"keeping the durable queues of namespace {namespace!r}")

    started = False
    with caught(hear):
        manager.starting("recovering durable queues")
        persistence.recover()
        started = True
        persistence.run(begun)
