"""Functions that the tests name in their jobs' files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def late(rows: DataFrame) -> DataFrame:
    """Those that are late, as JSON, under the key of their carrier."""
    chosen = rows.where("delay > 30")
    return chosen.select(
        f.to_json(f.struct("carrier", "delay")).alias("value"),
        f.col("carrier").cast("binary").alias("key"),
    )


def with_carrier(rows: DataFrame) -> DataFrame:
    return rows.select("carrier", "delay")


def nothing(rows: DataFrame) -> None:
    del rows


def fails(rows: DataFrame) -> DataFrame:
    return rows.select("no_such_column")


def fails_to_parse(rows: DataFrame) -> DataFrame:
    return rows.where("carrier = = 1")


def text(rows: DataFrame) -> DataFrame:
    """The bodies as text, and which half of the alphabet each begins in."""
    made = rows.select(f.col("value").cast("string").alias("text"))
    return made.withColumn("half", f.when(f.col("text") < "n", "a").otherwise("b"))
