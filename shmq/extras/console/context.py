"""What all requests of a console share, and the threads in which they work."""

from __future__ import annotations

import dataclasses
import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

import shmq
from shmq.extras.console.access import Access, Sessions
from shmq.extras.console.errors import ErrorBook
from shmq.extras.console.leases import LeaseBook
from shmq.extras.console.observer import ObserverThread
from shmq.extras.console.settings import ConsoleSettings
from shmq.host.supervision.login_failures import LoginFailures


@dataclasses.dataclass(slots=True, kw_only=True)
class Console:
    """A running console: its settings, whom it lets in, and what it looks at."""

    settings: ConsoleSettings
    #: The broker whose queues are shown; its methods may be called by any thread.
    broker: shmq.Broker
    access: Access
    sessions: Sessions
    #: Looks at everything each second.
    observer: ObserverThread
    #: The messages that callers of the API hold leased.
    leases: LeaseBook
    #: The errors of queues, by queue.
    errors: ErrorBook = dataclasses.field(default_factory=ErrorBook)
    #: Failed logins by address, which make the next one slower.
    logins: LoginFailures = dataclasses.field(default_factory=LoginFailures)
    #: Set when the console ends: long polls, event streams and WebSockets end then.
    ending: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        # An idle session ends at the next look, whether or not anybody leases.
        self.observer.listen(lambda _: self.leases.end_idle())


T = TypeVar("T")


async def in_thread(
    work: Callable[..., T], *given: Any, limiter: anyio.CapacityLimiter | None = None
) -> T:
    """The result of ``work(*given)`` in a thread. Raises what it raises."""
    return await anyio.to_thread.run_sync(_run, work, given, limiter=limiter)


def _run(work: Callable[..., T], given: tuple[Any, ...]) -> T:
    """Empties the frames of an error: a thread of anyio keeps its last one until its next work.

    With the frames it would keep the streams that they had open, a descriptor for each partition.
    """
    try:
        return work(*given)
    except Exception as error:
        link: BaseException | None = error
        while link is not None:
            traceback.clear_frames(link.__traceback__)
            link = link.__cause__ or link.__context__
        raise
