"""The process of one front-end worker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from shmq.client.shared import durability
from shmq.errors import DurabilityWarning, ShmqError
from shmq.host.supervision.audit import to_file
from shmq.host.supervision.heartbeat import Heartbeat
from shmq.host.supervision.signals import blocked_signals, end_with_parent, handle_sigterm
from shmq.host.supervision.stderr import show_on_stderr, show_stack_on_demand
from shmq.native._core import reserve_standard
from shmq.server.config.settings import Settings
from shmq.server.connection.connection import ConnectionCounts
from shmq.server.frontend import FrontEnd
from shmq.server.keeper import limit_lock_waits

log = logging.getLogger("shmq.server")

#: What a worker tells its supervisor: it accepts connections; the new settings are in force.
READY: Final = "ready"
RELOADED: Final = "reloaded"

#: How much longer than the drain a process may take whose loop does not reach its timers, in
#: seconds.
_GRACE: Final = 2.0

#: How soon a thread that computes lets the event loop go on, in seconds.
_SWITCH: Final = 0.001

#: How long the event loop waits for a lock, in seconds.
_LOCK_WAIT: Final = 0.002


def main(
    who: str,
    settings: Settings,
    listening: socket.socket,
    connection_counts: ConnectionCounts,
    row: int,
    heartbeat: Heartbeat,
    pipe: Connection,
    supervisor: int,
) -> None:
    """Serve the ``listening`` socket until SIGTERM, or until the ``supervisor`` ends.

    The ``pipe`` from the supervisor brings new settings; the ``heartbeat`` shows it that the loop
    runs.
    """
    end_with_parent(supervisor, signal.SIGTERM)
    show_stack_on_demand()
    sys.setswitchinterval(_SWITCH)
    limit_lock_waits(_LOCK_WAIT)
    handle_sigterm(lambda: os._exit(0))  # there is nothing to clean up yet
    show_on_stderr("shmq", settings.level)
    durability.never_wait()
    if settings.persist:  # the supervisor runs the writer
        os.environ["SHMQ_AUTOSTART"] = "0"
        warnings.simplefilter("ignore", DurabilityWarning)
    audited = to_file(settings.audit_log)
    reserve_standard()
    with audited, asyncio.Runner(loop_factory=_choose_loop_factory()) as runner:
        runner.run(_serve(who, settings, listening, connection_counts, row, heartbeat, pipe))


def _choose_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(who: str, settings: Settings, *places: Any) -> None:
    listening, connection_counts, row, heartbeat, pipe = places
    loop = asyncio.get_running_loop()
    front = FrontEnd(settings, listening, connection_counts, row)

    def drain() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, front.limits.drain + _GRACE)
        front.drain()

    def hear() -> None:
        try:
            fresh: Settings = pipe.recv()
        except (EOFError, OSError):  # the supervisor has ended
            loop.remove_reader(pipe.fileno())
            drain()
            return
        logging.getLogger("shmq").setLevel(fresh.level)
        try:
            front.reload(fresh)
        except ShmqError as error:  # the files have changed since the supervisor looked
            log.error("%s: settings not reloaded: %s", who, error)
        pipe.send(RELOADED)

    front.beat = heartbeat.beat
    front.beat()
    loop.add_signal_handler(signal.SIGTERM, drain)
    loop.add_reader(pipe.fileno(), hear)
    log.info("%s accepts connections", who)
    pipe.send(READY)
    await front.run()
    log.info("%s ended", who)
    _ignore_sigterm(loop)


def _ignore_sigterm(loop: asyncio.AbstractEventLoop) -> None:
    """Ignore further SIGTERMs: the server ends already, and a closing loop cannot take one."""
    with blocked_signals():
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
