"""``shmq schedule``: the list of schedules, a run by hand, and what is forgotten."""

from __future__ import annotations

import contextlib

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.workers.ledger import Ledger
from shmq.workers.schedule import Schedule
from tests.system.cli.conftest import Quick

#: In milliseconds since 1970.
SOME_DAY = 1_800_000_000_000


def test_schedules_are_listed_run_and_deleted(quick: Quick, broker: shmq.Broker) -> None:
    assert "has no schedules" in quick("schedule", "list").error
    assert quick("schedule", "list", "--json").json == []
    reports, beats = broker.create_queue("reports"), broker.create_queue("beats")
    with contextlib.closing(Ledger(broker, beats)) as ledger:
        ledger.declare(Schedule(every=60.0, missed="skip"), "app:beat", SOME_DAY)
    with contextlib.closing(Ledger(broker, reports)) as ledger:
        schedule = Schedule(cron="0 6 * * *", timezone="Europe/Berlin")
        ledger.declare(schedule, "app:report", 0)
        ledger.note(5 * 3_600_000, 5 * 3_600_000 + 1500, skipped=False)

    first, second = quick("schedule", "list", "--json").json
    assert first == {
        "queue": "beats",
        "handler": "app:beat",
        "schedule": None,
        "every": 60.0,
        "timezone": "UTC",
        "missed": "skip",
        "next_run": SOME_DAY / 1000 + 60,
        "overdue": False,
        "last_run": None,
        "handled_at": None,
        "outcome": None,
        "error": "",
    }
    assert second["overdue"]
    assert (second["last_run"], second["handled_at"]) == (18_000.0, 18_001.5)
    assert (second["next_run"], second["outcome"]) == (18_000.0 + 86_400, "done")
    beat, report = quick("schedule", "list").text.splitlines()[1:]
    assert beat.split()[:5] == ["beats", "app:beat", "every", "60", "s"]
    assert beat.split()[-1] == "never"
    assert "Europe/Berlin  1970-01-02" in report
    assert "(overdue)" in report

    quick("schedule", "run", "reports")
    (message,) = reports.peek()
    assert message.body is None
    assert message.headers["scheduled_at"].endswith("+00:00")
    assert quick("schedule", "list", "--json").json[1] == second

    quick("schedule", "delete", "beats", "--yes")
    assert quick("schedule", "list", "--json").json == [second]
    for command in (["run", "beats"], ["delete", "beats", "--yes"]):
        error = quick("schedule", *command, code=Code.NO_QUEUE).error
        assert "queue 'beats' has no schedule" in error
    assert quick("schedule", "delete", "reports", "--yes", "--json").json["deleted"] is True
