"""The users of the processes of a namespace that users of a group share."""

from __future__ import annotations

import psutil

from shmq.api.broker import Broker
from shmq.api.names import group_of
from shmq.client.local.broker import LocalBroker

#: A process that cannot be seen: it has ended, or /proc hides those of other users.
_UNKNOWN = "?"


def has_users(broker: Broker) -> bool:
    """Whether the processes of the broker's namespace may be of several users of this host."""
    return isinstance(broker, LocalBroker) and group_of(broker.namespace) is not None


def user_of(pid: int) -> str:
    """The name of the user whose process it is; its id if it has no name, ``?``: not known."""
    try:
        return psutil.Process(pid).username() if pid else _UNKNOWN
    except (psutil.Error, OSError):
        return _UNKNOWN
