"""Thumbnails by taskiq over shmq: README.md says how to run it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from taskiq import TaskiqScheduler

from shmq.extras.taskiq import ShmqBroker, ShmqResultBackend, ShmqScheduleSource

results: ShmqResultBackend[str] = ShmqResultBackend()  # where SHMQ_URL or SHMQ_NAMESPACE says
broker = ShmqBroker().with_result_backend(results)
schedules = ShmqScheduleSource()
scheduler = TaskiqScheduler(broker, [schedules])


@broker.task
async def thumbnail(picture: str, width: int) -> str:
    """Make a thumbnail."""
    return f"{picture}@{width}"


async def main() -> None:
    """Send tasks, print their results, and schedule one for a second later."""
    await broker.startup()
    sent = [await thumbnail.kiq(f"picture-{number}", 100) for number in range(20)]
    for task in sent:
        print((await results.wait_result(task.task_id, 30)).return_value)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    later = thumbnail.kicker().with_task_id("later")
    await later.schedule_by_time(schedules, soon, "scheduled", 100)
    print((await results.wait_result("later", 30)).return_value)
    await schedules.shutdown()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
