"""A queue in numbers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """A line of the list of queues."""

    name: str
    #: Visible messages.
    depth: int
    delayed: int
    #: Leased messages.
    in_flight: int
    capacity: int
    #: Why the queue cannot be used, and its numbers are 0; None if it can.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Counts are of messages, ages and times in seconds, rates per second.

    Totals count from when the queue was made. A process that dies between a change
    and its total leaves that total one behind; depths are always exact.
    """

    name: str
    #: Visible messages, those that wait behind their group's one in flight included.
    depth: int
    delayed: int
    #: Leased messages.
    in_flight: int
    #: Messages on their way to the dead-letter queue.
    dying: int
    capacity: int
    #: Age of the oldest visible message; 0 if there is none.
    oldest_age: float
    #: Messages per second over the last one to two seconds.
    rate_in: float
    rate_out: float
    put: int
    acked: int
    nacked: int
    #: Leases that ran out.
    expired: int
    redelivered: int
    #: Messages moved to the dead-letter queue.
    dead_lettered: int
    #: Messages dropped: by overflow, ttl, or a limit without a dead-letter queue.
    dropped: int
    #: Puts that were duplicates within the dedupe window.
    deduped: int
    arena_bytes: int
    arena_used: int
    #: The largest body that would fit now.
    arena_largest_free: int
    #: What the segment takes in /dev/shm.
    shm_bytes: int
    #: How often the indexes were rebuilt after a process died inside an operation.
    recoveries: int
    #: Threads asleep until a message comes, and until there is space. All tasks of a
    #: process that wait through one handle count as one.
    waiting_get: int
    waiting_put: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One attached handle."""

    pid: int
    #: The process's name.
    name: str
    #: Messages it holds leased.
    leases: int
    #: When it attached, in seconds since 1970.
    since: float
    alive: bool
