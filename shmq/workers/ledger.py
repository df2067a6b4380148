"""The ledger of schedules: a table with what is declared, and the last run of each queue.

The table is on disk for a durable queue, so that a restart of the machine does not lose what was
missed. Its keys are ``QUEUE/declared``, ``QUEUE/last`` and ``QUEUE/run``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Final, Literal

from shmq import api
from shmq.api.message import error_of
from shmq.api.table import TableDurability
from shmq.errors import NotFound, QueueDeleted, TableDeleted
from shmq.native import _clock as time
from shmq.workers.schedule import GRACE, Schedule

#: The tables. No escape of a name has two colons in a row.
_TABLES: Final[dict[TableDurability, str]] = {
    "memory": "schedules::memory",
    "disk": "schedules::disk",
}

#: What is deleted while it is looked at.
_GONE: Final = (NotFound, QueueDeleted, TableDeleted)

_KEYS: Final = ("declared", "last", "run")

#: The header of a run's message: the time of the run, in ISO 8601, in its time zone.
HEADER: Final = "scheduled_at"

#: By which name the runs of a queue are staged.
PUBLISHER: Final = "schedule"

#: What became of a run: it was skipped; its message waits in the queue; a message is leased, or
#: returns after a back-off; it is a dead letter; or none of these.
Outcome = Literal["skipped", "waiting", "running", "failed", "done"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSummary:
    """The schedule of one queue. Times are in seconds since 1970."""

    queue: str
    #: The function that handles its runs, as ``module:name``.
    handler: str
    schedule: str | None
    #: The interval, in seconds.
    every: float | None
    timezone: str
    missed: str
    #: The first run after the last one.
    next_run: float
    #: Whether the next run is over 60 s late: no supervisor runs, or the queue is full.
    overdue: bool
    #: The time of the last run; None: there was none.
    last_run: float | None
    #: When it was put, or skipped.
    handled_at: float | None
    outcome: Outcome | None
    #: Why it failed, or is waiting again; empty without an error.
    error: str


def _durability_of(queue: api.Queue) -> TableDurability:
    return "memory" if queue.options.durability == "memory" else "disk"


class Ledger:
    """The entries of one queue. For one thread."""

    def __init__(self, broker: api.Broker, queue: api.Queue) -> None:
        durability = _durability_of(queue)
        self._table = broker.ensure_table(_TABLES[durability], durability)
        self._queue = queue.name

    def declare(self, schedule: Schedule, handler: str, now: int) -> int:
        """Store what a worker declares, and return since when that schedule applies.

        Times before that are not missed: the schedule did not exist. One that was declared as of a
        later time, before the clock was set back, begins again.
        """
        key = f"{self._queue}/declared"
        declared = {"handler": handler, **dataclasses.asdict(schedule)}
        found: dict[str, Any] = self._table.get(key, {})
        since = found.pop("since", None)
        if (
            since is not None
            and since <= now
            and _without_policy(found) == _without_policy(declared)
        ):
            now = since
        self._table.set(key, {**declared, "since": now})
        return now

    @property
    def last(self) -> int:
        """The time of the last run; 0: there was none."""
        return int(self._table.get(f"{self._queue}/last", 0))

    def note(self, slot: int, now: int, *, skipped: bool) -> None:
        """Store that the run of that time was put or skipped, unless a later one was."""
        while (last := self.last) < slot:
            # Succeeds only if no other process has changed it in the meantime.
            if (
                self._table.increment(f"{self._queue}/last", slot - last, least=slot, most=slot)
                is not None
            ):
                run = {"slot": slot, "at": now, "skipped": skipped}
                self._table.set(f"{self._queue}/run", run)

    def forget(self) -> None:
        """Delete the entries."""
        self._table.delete(*(f"{self._queue}/{key}" for key in _KEYS))

    def close(self) -> None:
        """Detach from the table."""
        self._table.close()


def _without_policy(declared: dict[str, Any]) -> dict[str, Any]:
    """What the times of the runs follow from."""
    return {key: declared.get(key) for key in ("cron", "every", "timezone")}


def list_schedules(broker: api.Broker) -> list[ScheduleSummary]:
    """The schedules of the namespace, sorted by queue. Raises what the broker raises."""
    found = []
    for durability, name in _TABLES.items():
        with contextlib.suppress(*_GONE), broker.table(name) as table:
            for key in table.keys(limit=10_000):
                queue, _, kind = key.partition("/")
                if kind == "declared":
                    found += _summarize(broker, table, queue, durability)
    return sorted(found, key=lambda one: one.queue)


def find_schedule(broker: api.Broker, queue: str) -> ScheduleSummary | None:
    """The schedule of the queue; None if it has none. Raises what the broker raises."""
    for durability, name in _TABLES.items():
        with contextlib.suppress(*_GONE), broker.table(name) as table:
            for found in _summarize(broker, table, queue, durability):
                return found
    return None


def _summarize(
    broker: api.Broker, table: api.Table, name: str, durability: TableDurability
) -> list[ScheduleSummary]:
    """The schedule of the queue; none if the queue was deleted, or has its entries elsewhere."""
    entries = table.get_many(f"{name}/{key}" for key in _KEYS)
    declared = entries.get(f"{name}/declared")
    with contextlib.suppress(*_GONE), broker.put_target(name) as queue:
        if declared is not None and _durability_of(queue) == durability:
            last = entries.get(f"{name}/last", 0)
            run = entries.get(f"{name}/run")
            return [_describe(broker, queue, declared, last, run)]
    return []


def _describe(
    broker: api.Broker,
    queue: api.Queue,
    declared: dict[str, Any],
    last: int,
    run: dict[str, Any] | None,
) -> ScheduleSummary:
    handler, since = declared.pop("handler"), declared.pop("since")
    schedule = Schedule(**declared)
    outcome, error = (None, "") if run is None else _find_outcome(broker, queue, schedule, run)
    next_run = schedule.find_next(max(since, last))
    return ScheduleSummary(
        queue=queue.name,
        handler=handler,
        schedule=schedule.cron,
        every=schedule.every,
        timezone=schedule.timezone,
        missed=schedule.missed,
        next_run=next_run / 1000,
        overdue=next_run + GRACE < time.time_ns() // 1_000_000,
        last_run=last / 1000 if last else None,
        handled_at=None if run is None else run["at"] / 1000,
        outcome=outcome,
        error=error,
    )


def _find_outcome(
    broker: api.Broker, queue: api.Queue, schedule: Schedule, run: dict[str, Any]
) -> tuple[Outcome, str]:
    """What became of a run, from its message in the queue or among the dead letters."""
    if run["skipped"]:
        return "skipped", ""
    where = f"header.{HEADER} = '{format_slot(schedule, run['slot'])}'"
    for message in queue.peek(1, where=where):
        return "waiting", str(message.last_error or "")
    with contextlib.suppress(*_GONE):
        if queue.options.dead_letter is not None:
            with broker.queue(queue.options.dead_letter) as letters:
                for dead in letters.peek(1, where=where):
                    reason = "" if dead.dead is None else dead.dead.reason
                    return "failed", str(error_of(dead) or reason)
    stats = queue.stats()
    return ("running" if stats.in_flight or stats.delayed else "done"), ""


def format_slot(schedule: Schedule, slot: int) -> str:
    """The time of a run in ISO 8601, as its message has it."""
    timespec = "milliseconds" if slot % 1000 else "seconds"
    return schedule.local_time(slot).isoformat(timespec=timespec)
