"""The life of the process in which a server's keeper runs."""

from __future__ import annotations

import signal

from shmq.processes.lines import show_on_stderr
from shmq.processes.signals import leave_to_the_supervisor
from shmq.processes.tether import tether
from shmq.server.keeper import Keeper

__all__ = ["main"]


def main(namespace: str, level: int, supervisor: int) -> None:
    """Keep the namespace until SIGTERM, or the end of the ``supervisor``."""
    tether(supervisor, signal.SIGTERM)
    show_on_stderr("shmq", level)
    keeper = Keeper(namespace)
    leave_to_the_supervisor(keeper.stop)
    keeper.run()
