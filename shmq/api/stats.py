"""The statistics of a queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from shmq.display import Displayed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """One entry of the list of queues."""

    #: The queue's name.
    name: str
    #: Visible messages.
    depth: int
    #: Messages that are not visible yet.
    delayed: int
    #: Leased messages.
    in_flight: int
    #: How many messages it can hold.
    capacity: int
    #: Why the queue cannot be used (its numbers are then 0); None if it can be used.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats(Displayed):
    """The statistics of a queue: counts of messages, times in seconds, rates per second.

    Totals count from the creation of the queue. If a process dies between a change and its total,
    that total stays one too low; depths are always exact.
    """

    #: The queue's name.
    name: str
    #: Visible messages, including those that wait after a leased one of their group.
    depth: int
    #: Messages that are not visible yet: put with a delay, or returned with one.
    delayed: int
    #: Leased messages.
    in_flight: int
    #: Messages on their way to the dead-letter queue.
    dying: int
    #: How many messages it can hold.
    capacity: int
    #: Age of the oldest visible message; 0 if there is none.
    oldest_age: float
    #: Messages put per second, over the last one to two seconds.
    rate_in: float
    #: Messages acknowledged per second, over the last one to two seconds.
    rate_out: float
    #: Messages put so far.
    put: int
    #: Messages acknowledged so far.
    acked: int
    #: Messages returned by ``nack`` so far.
    nacked: int
    #: Leases that ran out.
    expired: int
    #: Deliveries that were not a message's first.
    redelivered: int
    #: Messages moved to the dead-letter queue.
    dead_lettered: int
    #: Messages dropped: by overflow, by ttl, or at a limit without a dead-letter queue.
    dropped: int
    #: Of the dead-lettered: those that were rejected. The totals by reason count from the creation
    #: of the queue in memory: files do not keep them, so they start again when it is restored.
    dead_lettered_rejected: int = 0
    #: Of the dead-lettered: those that were delivered ``max_deliveries`` times.
    dead_lettered_max_deliveries: int = 0
    #: Of the dead-lettered: those whose ttl was over.
    dead_lettered_expired: int = 0
    #: Of the dropped: those that made room for a newer one.
    dropped_overflow: int = 0
    #: Of the dropped: those that were rejected.
    dropped_rejected: int = 0
    #: Of the dropped: those that were delivered ``max_deliveries`` times.
    dropped_max_deliveries: int = 0
    #: Of the dropped: those whose ttl was over.
    dropped_expired: int = 0
    #: Deliveries that failed with an error (``nack(error=)``, ``reject(reason)``), by the error's
    #: type: the 20 most frequent, the most frequent first, then ``"other"``. Errors that are a mere
    #: text count as ``"text"``. Files do not keep these counts: they start again when the queue is
    #: restored.
    errors: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    #: Puts that were duplicates within the dedupe window.
    deduped: int
    #: Room for bodies and properties.
    arena_bytes: int
    #: How much of that room is in use.
    arena_used: int
    #: The largest body that would fit now.
    arena_largest_free: int
    #: The segment's size in /dev/shm.
    shm_bytes: int
    #: How often the indexes were rebuilt after a process died inside an operation.
    recoveries: int
    #: Waits that sleep until a message comes. All tasks of a process that wait through one handle
    #: count as one.
    waiting_get: int
    #: Waits that sleep until there is space.
    waiting_put: int
    #: What outlives the machine: ``"memory"``, ``"snapshot"`` or ``"journal"``.
    durability: str = "memory"
    #: Whether a persistence writer follows the queue.
    journal_writer: bool = False
    #: Its process id; 0: it is in another PID namespace. None: there is none.
    journal_writer_pid: int | None = None
    #: Puts that are not on disk yet.
    journal_lag: int = 0
    #: Settled messages that keep their slots until their settlement is in the journal.
    journal_waiting: int = 0
    #: Every put up to this sequence number is on disk, or was settled before it got there.
    journal_synced: int = 0
    #: Why the last attempt to write to the journal failed; None: it succeeded.
    journal_error: str | None = None
    #: Bytes written to the journal so far.
    journal_bytes: int = 0
    #: Age of the newest snapshot; None: there is none.
    snapshot_age: float | None = None

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        for field in dataclasses.fields(self):
            yield field.name, getattr(self, field.name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One attached handle."""

    #: The process id; 0: the process is in a PID namespace that cannot be seen from here, or from
    #: the server. Of a dead process, as it saw it itself.
    pid: int
    #: The process's name.
    name: str
    #: Messages it holds leased.
    leases: int
    #: When it attached, in seconds since 1970.
    since: float
    #: Whether the process is alive; the messages a dead one had leased return at the next use.
    alive: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A leased message and its holder, to be shown: it has no receipt, and cannot be settled."""

    #: The message's sequence number.
    sequence: int
    #: How often it was delivered; this delivery counts once the application has the message.
    deliveries: int
    #: Its priority.
    priority: int
    #: The size of its body, in bytes.
    size: int
    #: The process id of the holder, as in `Attachment`; of a message that a remote client holds,
    #: that of the server's process. 0: unknown.
    holder_pid: int
    #: The name of that process; empty: unknown.
    holder_name: str
    #: Seconds until the lease ends, unless it is extended.
    expires_in: float
