"""What all requests of a console share."""

from __future__ import annotations

import dataclasses
import threading

import shmq
from shmq.extras.console.access import Access
from shmq.extras.console.leases import LeaseBook
from shmq.extras.console.observer import ObserverThread
from shmq.extras.console.sessions import Sessions
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
    #: Failed logins by address, which make the next one slower.
    logins: LoginFailures = dataclasses.field(default_factory=LoginFailures)
    #: Set when the console ends: long polls, event streams and WebSockets end then.
    ending: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        # An idle session ends at the next look, whether or not anybody leases.
        self.observer.listen(lambda _: self.leases.end_idle())
