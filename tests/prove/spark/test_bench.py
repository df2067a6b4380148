"""The benchmark's check of rows sees what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bench.spark import numbered, session
from bench.stage import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 20

Change = Callable[[list[bytes]], list[bytes]]

#: What a source or a sink may have done to the rows.
CHANGES: dict[str, Change] = {
    "lost": lambda sent: sent[1:],
    "doubled": lambda sent: [*sent, sent[-1]],
    "one for another": lambda sent: [*sent[:-1], sent[0]],
    "damaged": lambda sent: [sent[0][:-1] + b"?", *sent[1:]],
    "numbers that add up alike": lambda sent: [sent[1], sent[1], sent[1], *sent[3:]],
}


@pytest.fixture(autouse=True)
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The benchmark has the session of the run."""
    monkeypatch.setattr(session, "_begun", [(spark, True)])
    return spark


def rows(spark: SparkSession, values: list[bytes]) -> None:
    frame = spark.createDataFrame([(value,) for value in values], "value BINARY")
    numbered.check(frame, ROWS)


def sent() -> list[bytes]:
    return [numbered.value(number) for number in range(ROWS)]


def test_all_rows_in_any_order_are_right(shared: SparkSession) -> None:
    rows(shared, sent()[::-1])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_was_done_to_rows_is_told(shared: SparkSession, change: Change) -> None:
    with pytest.raises(Failed, match="in place of"):
        rows(shared, change(sent()))
