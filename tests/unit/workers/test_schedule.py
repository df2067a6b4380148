"""The times of a schedule, and those that are refused."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest

import shmq
from shmq.workers.schedule import Schedule, declare_schedule

BERLIN = "Europe/Berlin"
MINUTE = 60_000


def ms(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp() * 1000)


def runs(schedule: Schedule, begin: str, end: str) -> list[str]:
    """The runs between two times, in the schedule's time zone."""
    found, last = [], ms(begin)
    while (last := schedule.find_next(last)) <= ms(end):
        found.append(schedule.local_time(last).isoformat())
    return found


def test_a_cron_expression_is_of_its_time_zone() -> None:
    schedule = Schedule(cron="0 6 * * *", timezone=BERLIN)
    assert runs(schedule, "2027-01-01T00:00+01:00", "2027-01-02T12:00+01:00") == [
        "2027-01-01T06:00:00+01:00",
        "2027-01-02T06:00:00+01:00",
    ]
    assert Schedule(cron="0 6 * * *").find_next(0) == 6 * 60 * MINUTE


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        # 02:00 to 03:00 does not exist: the run is at the end of the gap, once.
        ("30 2 * * *", ["2027-03-28T03:00:00+02:00"]),
        ("0,30 2,3 * * *", ["2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00"]),
        ("0 * * * *", ["2027-03-28T03:00:00+02:00"]),
    ],
)
def test_clocks_that_are_set_forward(cron: str, expected: list[str]) -> None:
    schedule = Schedule(cron=cron, timezone=BERLIN)
    assert runs(schedule, "2027-03-28T01:45+01:00", "2027-03-28T03:45+02:00") == expected


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        # 02:00 to 03:00 comes twice: the run is in the first hour, unless it is of every hour.
        ("30 2 * * *", ["2027-10-31T02:30:00+02:00"]),
        (
            "0 * * * *",
            ["2027-10-31T02:00:00+02:00", "2027-10-31T02:00:00+01:00", "2027-10-31T03:00:00+01:00"],
        ),
    ],
)
def test_clocks_that_are_set_back(cron: str, expected: list[str]) -> None:
    schedule = Schedule(cron=cron, timezone=BERLIN)
    assert runs(schedule, "2027-10-31T01:45+02:00", "2027-10-31T03:15+01:00") == expected


@pytest.mark.parametrize("day", ["2027-03-28", "2027-10-31", "2027-06-01"])
@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "0,30 2,3 * * *", "*/20 * * * *", "15 */2 * * *", "5 1 * * MON-FRI"]
)
def test_the_latest_time_is_the_last_of_those_before(cron: str, day: str) -> None:
    schedule = Schedule(cron=cron, timezone=BERLIN)
    begin = ms(f"{day}T00:00+01:00")
    latest = schedule.find_latest(begin)
    for now in range(begin, begin + 5 * 60 * MINUTE, 7 * MINUTE + 500):
        while (found := schedule.find_next(latest)) <= now:
            latest = found
        assert schedule.find_latest(now) == latest <= now
        assert schedule.find_latest(latest) == latest


@pytest.mark.parametrize("every", [1, 1.5, 60, 86_400.25, dt.timedelta(hours=1)])
def test_an_interval_has_the_same_times_in_every_process(every: Any) -> None:
    schedule = declare_schedule(None, every, None, "once")
    assert schedule is not None
    assert schedule.every is not None
    step = round(schedule.every * 1000)
    now = ms("2027-01-01T00:00:00.123+00:00")
    assert schedule.find_next(now) % step == schedule.find_latest(now) % step == 0
    assert schedule.find_latest(now) <= now < schedule.find_next(now)
    assert schedule.find_next(schedule.find_latest(now)) == schedule.find_next(now)
    assert schedule.find_latest(schedule.find_next(now)) == schedule.find_next(now)


def test_an_expression_with_seconds_and_more_spaces() -> None:
    schedule = declare_schedule("  */10 * *  * * * ", None, None, "skip")
    assert schedule is not None
    assert schedule.cron == "*/10 * * * * *"
    assert schedule.find_next(0) == 10_000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"schedule": "0 25 * * *"}, "schedule='0 25 * * *' is not a cron expression: Bad hour"),
        ({"schedule": "daily"}, "Wrong number of fields"),
        ({"schedule": ""}, "Wrong number of fields"),
        ({"schedule": "0 0 30 2 *"}, "is not a cron expression: Bad day-of-month"),
        ({"schedule": "0 0 * * MON#"}, "is not a cron expression"),
        ({"schedule": "0 6 * * *", "timezone": "Europe/Atlantis"}, "'Europe/Atlantis' is not a"),
        ({"schedule": "0 6 * * *", "timezone": "../etc/passwd"}, "is not a time zone of this"),
        ({"schedule": "0 6 * * *", "timezone": "Europe"}, "is not a time zone of this machine"),
        ({"schedule": "0 6 * * *", "timezone": ""}, "is not a time zone of this machine"),
        ({"schedule": "0 6 * * *", "every": 60}, "exclude each other"),
        ({"every": 60, "timezone": "UTC"}, "timezone='UTC' needs a schedule"),
        ({"every": 0.5}, "every=0.5 s is out of range: 1.0 to"),
        ({"every": 0}, "every=0 s is out of range"),
        ({"every": -5}, "every=-5 s is out of range"),
        ({"every": math.nan}, "every=nan s is out of range"),
        ({"every": math.inf}, "every=inf s is out of range"),
        ({"every": dt.timedelta(milliseconds=1)}, "every=0.001 s is out of range"),
        ({"every": 60, "missed": "twice"}, "missed='twice' must be one of 'once', 'skip'"),
        ({"missed": "skip"}, "missed='skip' needs a schedule or every"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_where_it_is_declared(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(shmq.InvalidOption) as caught:
        shmq.worker("jobs", **given)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [{"schedule": 5}, {"every": "60"}, {"every": True}, {"schedule": "0 6 * * *", "timezone": 1}],
)
def test_an_argument_of_another_type_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        shmq.worker("jobs", **given)


def test_without_cronsim_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    with pytest.raises(shmq.Unsupported, match=r"pip install 'shmq\[schedule\]'"):
        shmq.worker("jobs", schedule="0 6 * * *")
    shmq.worker("jobs", every=60)
