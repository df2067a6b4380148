"""A short soak; `make spark-soak` kills more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.soak.spark.storm import Outcome, archived, body_of, judge, storm

pytestmark = pytest.mark.watchdog(1800)


def test_each_number_is_in_the_files_once_whoever_is_killed(tmp_path: Path) -> None:
    *killed, outcome = storm(tmp_path, seed=20_261_122, kills=2, pause=2)

    assert isinstance(outcome, Outcome)
    judge(outcome, archived(tmp_path))
    assert not outcome.wrong(), outcome
    assert len(killed) == 2
    assert outcome.put > 0


def test_the_judge_sees_what_is_lost_doubled_and_unexpected() -> None:
    values = [body_of(0), body_of(2), body_of(2), b"else"]

    outcome = judge(Outcome(put=4), values)

    assert outcome.lost == [1, 3]
    assert outcome.doubled == {2: 2}
    assert outcome.unexpected == 1
