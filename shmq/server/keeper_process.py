"""The process in which a server's keeper runs."""

from __future__ import annotations

import signal
from typing import Final

from shmq.server.keeper import Keeper
from shmq.server.lock_wait import limit_lock_waits
from shmq.supervision.heartbeat import Heartbeat, show_stack_on_demand
from shmq.supervision.log_lines import show_on_stderr
from shmq.supervision.parent_watch import tether
from shmq.supervision.signals import leave_to_the_supervisor

__all__ = ["main"]

#: How long it waits for the lock of one queue, in seconds.
_LOCK_WAIT: Final = 0.01


def main(namespace: str, level: int, heartbeat: Heartbeat, supervisor: int) -> None:
    """Tend the namespace until SIGTERM, or until the ``supervisor`` ends."""
    tether(supervisor, signal.SIGTERM)
    show_stack_on_demand()
    show_on_stderr("shmq", level)
    limit_lock_waits(_LOCK_WAIT)
    keeper = Keeper(namespace, alive=heartbeat.beat)
    leave_to_the_supervisor(keeper.stop)
    keeper.run()
