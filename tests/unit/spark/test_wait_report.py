"""What a write waits for is in the log and in the job's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmq import Full
from shmq.spark.shared import wait_report
from shmq.spark.shared.spark_error import describe_spark_error
from shmq.spark.shared.wait_report import WaitReport


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "waiting"


class Attempts:
    """An attempt that fails some times first, and the seconds that it was given."""

    def __init__(self, failures: int) -> None:
        self.seconds: list[float | None] = []
        self._failures = failures

    def __call__(self, seconds: float | None) -> str:
        self.seconds.append(seconds)
        if len(self.seconds) <= self._failures:
            raise Full("queue 'out' has no room in its arena")
        return "done"


def test_a_wait_is_reported_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, file: Path
) -> None:
    monkeypatch.setattr(wait_report, "INTERVAL", 0.0)
    attempt, report = Attempts(2), WaitReport(str(file))
    report.waits(["queue 'other' has no room"])
    assert file.read_text() == "queue 'other' has no room"

    assert report.until_room(attempt, None) == "done"

    assert attempt.seconds == [0.0] * 3
    assert file.read_text() == ""
    waits = "the write waits: queue 'out' has no room in its arena"
    assert [record.getMessage() for record in caplog.records] == [
        "the write waits: queue 'other' has no room",
        waits,
        waits,
        "the write no longer waits",
    ]


def test_a_short_wait_is_not_reported(caplog: pytest.LogCaptureFixture, file: Path) -> None:
    report = WaitReport(str(file))

    assert report.until_room(Attempts(1), 3600) == "done"

    assert not file.exists()
    assert not caplog.records


def test_a_wait_ends_with_the_reason_when_its_time_has_expired() -> None:
    attempt = Attempts(9)
    with pytest.raises(Full, match="no room in its arena"):
        WaitReport(None).until_room(attempt, 0.0)
    assert attempt.seconds == [0.0]


def test_a_report_of_another_host_is_only_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(wait_report, "INTERVAL", 0.0)
    WaitReport(str(tmp_path / "nowhere" / "waiting")).waits(["it"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "described"),
    [
        (
            (
                "\n[PARSE_SYNTAX_ERROR] Syntax error at or near '='. SQLSTATE: 42601 "
                "(line 1, pos 2)\n\n== SQL ==\na ="
            ),
            "[PARSE_SYNTAX_ERROR] Syntax error at or near '='. (line 1, pos 2)",
        ),
        (
            "[NO_COLUMN] `a`. SQLSTATE: 42703; line 1 pos 0;\n'Filter",
            "[NO_COLUMN] `a`. line 1 pos 0",
        ),
        ("it is wrong", "it is wrong"),
        ("\n \n", "ValueError"),
        ("", "ValueError"),
    ],
)
def test_the_cause_in_the_text_of_an_error_of_spark(text: str, described: str) -> None:
    assert describe_spark_error(ValueError(text)) == described
