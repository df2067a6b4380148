"""The plan of workers: the handler, the queue, the number of processes, and the mode."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, Literal, get_args

from shmq import api
from shmq.api.names import check_name, default_namespace
from shmq.api.options import MIN_LEASE, check_one_of, check_seconds, check_whole
from shmq.client.local.broker import LocalBroker
from shmq.errors import InvalidOption

if TYPE_CHECKING:
    from shmq.client.remote.address import Target

__all__ = ["MODES", "Mode", "Plan"]

#: ``parallel``: every process takes any message. ``keyed``: the same, and the next message of a
#: group is available as soon as the one before is done. ``fifo``: one message at a time, in
#: the queue's order, over all processes of the host.
Mode = Literal["parallel", "keyed", "fifo"]
MODES: Final[tuple[str, ...]] = get_args(Mode)

MAX_PROCESSES: Final = 1024
MAX_PREFETCH: Final = 1 << 20
MAX_MESSAGES: Final = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The work on one queue. Times are in seconds.

    Raises :class:`~shmq.InvalidName` and :class:`~shmq.InvalidOption` when it is created.
    """

    #: ``module:name`` of the function, as every process imports it.
    handler: str
    queue: str
    #: The namespace on this host; unused with a ``server``.
    namespace: str = dataclasses.field(default_factory=default_namespace)
    #: The server that has the queue; None: it is on this host.
    server: Target | None = None
    processes: int = 1
    mode: Mode = "parallel"
    #: How many messages a process leases at a time, the current one included.
    prefetch: int = 1
    #: After how many messages a process is replaced; None: never.
    max_messages: int | None = None
    #: How long one message may take before its process is ended; None: without limit.
    timeout: float | None = None
    #: A process that got no message for so long ends and is not replaced; None: it waits.
    idle_timeout: float | None = None

    def __post_init__(self) -> None:
        check_name(self.queue)
        check_name(self.namespace, "namespace")
        check_whole("processes", self.processes, 1, MAX_PROCESSES)
        check_one_of("mode", self.mode, MODES)
        check_whole("prefetch", self.prefetch, 1, MAX_PREFETCH)
        if self.mode == "fifo" and self.prefetch != 1:
            raise InvalidOption(
                f"prefetch={self.prefetch} does not go with mode='fifo': what is leased ahead "
                f"of a message that fails would be handled before it; drop one of them"
            )
        if self.mode == "fifo" and self.server is not None:
            raise InvalidOption(
                f"mode='fifo' goes by a lock of the queue's host, and {self.server.address} may be "
                f"another: run these workers there, or use mode='keyed' with groups"
            )
        if self.max_messages is not None:
            check_whole("max_messages", self.max_messages, 1, MAX_MESSAGES)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout, MIN_LEASE)
        if self.idle_timeout is not None:
            check_seconds("idle_timeout", self.idle_timeout, 0.0)

    def reach(self) -> api.Broker:
        """The broker of the queue. Raises what :func:`shmq.connect` does."""
        if self.server is not None:
            from shmq.client.remote.broker import RemoteBroker  # noqa: PLC0415 - with a server alone

            return RemoteBroker(self.server)
        return LocalBroker(self.namespace)
