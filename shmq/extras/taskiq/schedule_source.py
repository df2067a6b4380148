"""Taskiq's schedules in a table of shmq; each run is sent by one scheduler alone."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from logging import getLogger
from typing import TYPE_CHECKING, Final

from taskiq import ScheduledTask, ScheduleSource
from taskiq.exceptions import ScheduledTaskCancelledError

from shmq.api.table import MAX_KEYS, Table, TableDurability
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.frameworks.task_queues import Connection
from shmq.extras.frameworks.task_table import TaskTable, shorten_key
from shmq.extras.taskiq.formatter import dump_model

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

log = getLogger("taskiq.shmq")

#: What the keys of schedules begin with, and those of the claims of their runs.
SCHEDULE: Final = "schedule:"
CLAIM: Final = "claim:"

#: How long a claim of one run in a minute, or of the only run, lasts, in seconds. If a scheduler
#: dies between the claim and the put of a single run, a scheduler that starts after this sends it.
CLAIMED: Final = 120.0


class ShmqScheduleSource(ScheduleSource):
    """Keeps schedules in the table ``table``; any number of schedulers may use it.

    Before a scheduler sends a task it claims the run: another scheduler that comes to the same run
    sends nothing. ``url``, ``token`` and ``tls`` are as for `ShmqBroker`, ``durability`` as for a
    table of shmq.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
        table: str = "taskiq-schedules",
        durability: TableDurability = "memory",
    ) -> None:
        self._table = TaskTable(Connection(url, token, tls), table, durability)

    async def shutdown(self) -> None:
        """Close the connection."""
        await run_blocking(self._table.close)

    async def get_schedules(self) -> list[ScheduledTask]:
        """All schedules. One that cannot be read is logged and left out."""
        return await run_blocking(self._table.run, _read_schedules)

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Add the schedule, or replace that of the same id."""
        # NaN and infinities, too: only `get_schedules` reads it.
        value = json.dumps(dump_model(schedule, "args", "kwargs"))
        await run_blocking(self._table.store, _make_key(schedule.schedule_id), value, None)

    async def delete_schedule(self, schedule_id: str) -> None:
        """Delete the schedule; it is not sent again, by no scheduler."""
        key = _make_key(schedule_id)
        await run_blocking(self._table.run, lambda table: table.delete(key))

    async def pre_send(self, task: ScheduledTask) -> None:
        """Claim this run. Raises ScheduledTaskCancelledError if it is another's, or deleted."""
        if not await run_blocking(self._table.run, lambda table: _claim(table, task)):
            raise ScheduledTaskCancelledError

    async def post_send(self, task: ScheduledTask) -> None:
        """Delete a schedule of a single run, which has been sent."""
        if task.cron is None and task.interval is None:
            await self.delete_schedule(task.schedule_id)


def _make_key(schedule_id: str) -> str:
    """The key of a schedule."""
    return shorten_key(SCHEDULE + schedule_id)


def _read_schedules(table: Table) -> list[ScheduledTask]:
    found: list[ScheduledTask] = []
    after = ""
    while keys := table.keys(SCHEDULE, MAX_KEYS, after):
        after = keys[-1]
        for key, value in table.get_many(keys).items():
            try:
                found.append(ScheduledTask.model_validate(json.loads(value)))
            except (ValueError, TypeError):
                log.exception("%r of table %r is not a schedule: passed over.", key, table.name)
    return found


def _claim(table: Table, task: ScheduledTask) -> bool:
    if table.get(_make_key(task.schedule_id)) is None:
        return False
    run, seconds = _run(task)
    return table.add(shorten_key(f"{CLAIM}{task.schedule_id}:{run}"), 1, ttl=seconds)


def _run(task: ScheduledTask) -> tuple[str, float]:
    """What the current run of a schedule is called, and how long its claim lasts.

    Taskiq starts what has a ``cron`` at most once a minute. Schedulers that begin at different
    times have different phases of an interval; the claim lasts until just before the next run of
    the one that made it, so that it keeps its phase, and another takes over if it is gone.
    """
    if task.cron is not None:
        return str(int(time.time() // 60)), CLAIMED
    if task.interval is not None:
        interval = task.interval
        whole = interval.total_seconds() if isinstance(interval, timedelta) else float(interval)
        return "interval", whole - 0.5
    return "only", CLAIMED
