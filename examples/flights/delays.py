"""Adds up, in Spark, the delays of each carrier in each hour of the day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from examples.flights.flights import LATE_MINUTES
from examples.flights.tally import Sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What the body of a counted flight holds, as JSON.
_RESULT: Final = "flight INT, carrier STRING, hour INT, departure INT, arrival INT"


def add_up(rows: DataFrame) -> tuple[int, int, dict[tuple[str, int], Sums]]:
    """The rows, the flights in them, and the sums of each carrier in each hour of the day.

    Each row is the message of a counted flight, with its body in ``value``.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy, and an extra

    result = f.from_json(f.col("value").cast("string"), _RESULT)
    flights = rows.select(result.alias("result")).select("result.*").cache()
    behind = f.greatest(f.coalesce("departure", f.lit(0)), f.coalesce("arrival", f.lit(0)))
    sums = flights.groupBy("carrier", "hour").agg(
        f.count("*"),
        f.count_if(behind >= LATE_MINUTES),
        f.count("departure"),
        f.coalesce(f.sum("departure"), f.lit(0)),
        f.count("arrival"),
        f.coalesce(f.sum("arrival"), f.lit(0)),
    )
    found = {(carrier, hour): Sums(*fields) for carrier, hour, *fields in sums.collect()}
    numbers = flights.agg(f.count("*"), f.count_distinct("flight")).collect()[0]
    return numbers[0], numbers[1], found
