"""Windows of time that stay open across batches until the watermark has passed them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import DamagedFile
from shmq.spark.jobs.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Windows"]

#: The part of the checkpoint with the open windows: a folder and a file for each batch.
_OPEN: Final = "open"

#: Waits are counted in classes, each longer than the previous one by this ratio, which is also
#: the largest error of a percentile. The first class is all waits up to a millisecond.
_RATIO: Final = 1.1

_SUMS: Final = ("messages", "bytes", "latency_sum")
_MOSTS: Final = ("bytes_max", "latency_max")


class Windows:
    """Counts messages by window and keys, batch by batch, each message once.

    The rows have the columns of ``keys``, and ``at`` (timestamp), ``bytes`` (bigint) and
    ``latency`` (double, in seconds, or null). The windows that batch N leaves open stay in the
    checkpoint until N + 2 is done, so that N + 1 can be repeated.
    """

    def __init__(
        self,
        session: SparkSession,
        checkpoint: str,
        keys: tuple[str, ...],
        *,
        seconds: float,
        late: float,
    ) -> None:
        self._session = session
        self._folder = Folder(session, checkpoint)
        self._keys = ("window_start", *keys)
        self._length = round(seconds * 1_000_000)
        self._late = round(late * 1_000_000)

    def add(self, rows: DataFrame, batch: int) -> tuple[DataFrame, DataFrame]:
        """Count the rows of a batch, and return the windows that it closes and the late counts.

        Both have a row for each window and its keys: the first with all results, the second
        with ``late``, the number of messages that came after the window was closed. Adding a
        batch again gives the same rows. Raises :class:`~shmq.DamagedFile` if the open windows
        of the previous batch are missing.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415 - heavy, and an extra

        before = self._read(batch - 1)
        watermark = before["watermark"] if before else None
        counted = self._counted(rows).persist()
        try:
            newest = counted.agg(f.max("newest")).first()[0]  # type: ignore[index]
            after = _later(watermark, None if newest is None else newest - self._late)
            ends = f.unix_micros("window_start") + self._length
            passed = f.lit(False) if watermark is None else ends <= watermark
            known = counted.where(~passed).drop("newest")
            if before:
                old = self._session.read.schema(known.schema)
                known = known.unionByName(old.parquet(self._folder.path(f"{_OPEN}/{batch - 1}")))
            known = self._summed(known).persist()
            closes = f.lit(False) if after is None else ends <= after
            self._write(known.where(~closes), after, batch)
            closed = self._results(known.where(closes)).localCheckpoint()
            late = counted.where(passed).groupBy(*self._keys)
            tardy = late.agg(f.sum("messages").alias("late")).localCheckpoint()
            known.unpersist()
        finally:
            counted.unpersist()
        return closed, tardy

    def _counted(self, rows: DataFrame) -> DataFrame:
        """The batch's own counts, by window, keys and class of wait."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        micros = f.unix_micros("at")
        start = f.timestamp_micros(micros - f.pmod(micros, f.lit(self._length)))
        longer = f.log(f.greatest("latency", f.lit(0.001)) / 0.001) / math.log(_RATIO)
        kind = f.when(f.col("latency").isNotNull(), f.ceil(longer))
        made = rows.withColumns({"window_start": start, "wait": kind, "micros": micros})
        return made.groupBy(*self._keys, "wait").agg(
            f.count("*").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.sum("latency").alias("latency_sum"),
            f.max("bytes").alias("bytes_max"),
            f.max("latency").alias("latency_max"),
            f.max("micros").alias("newest"),
        )

    def _summed(self, counted: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415

        return counted.groupBy(*self._keys, "wait").agg(
            *(f.sum(name).alias(name) for name in _SUMS),
            *(f.max(name).alias(name) for name in _MOSTS),
        )

    def _results(self, known: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415

        known_waits = f.sum(f.when(f.col("wait").isNotNull(), f.col("messages")))
        waits = f.least(f.lit(0.001) * f.pow(f.lit(_RATIO), f.col("wait")), "latency_max")
        percentiles = {"latency_p50": 0.5, "latency_p99": 0.99}
        return (
            known.withColumn("class", waits)
            .groupBy(*self._keys)
            .agg(
                f.sum("messages").alias("messages"),
                (f.sum("messages") * 1e6 / self._length).alias("rate"),
                f.sum("bytes").alias("bytes"),
                (f.sum("bytes") / f.sum("messages")).alias("bytes_mean"),
                f.max("bytes_max").alias("bytes_max"),
                (f.sum("latency_sum") / known_waits).alias("latency_mean"),
                *(
                    f.percentile("class", part, f.col("messages")).alias(name)
                    for name, part in percentiles.items()
                ),
                f.max("latency_max").alias("latency_max"),
            )
        )

    # ---- the checkpoint ----

    def _read(self, batch: int) -> dict[str, Any] | None:
        """The record of that batch; None if there is none."""
        if batch < 0:
            return None
        name = f"{batch}.json"
        if name not in self._folder.names(_OPEN):
            raise DamagedFile(
                self._folder.path(f"{_OPEN}/{name}"),
                0,
                "the windows that were open are gone: begin with another checkpoint",
            )
        found: dict[str, Any] = self._folder.read_json(f"{_OPEN}/{name}")
        return found

    def _write(self, known: DataFrame, watermark: int | None, batch: int) -> None:
        path = self._folder.path(f"{_OPEN}/{batch}")
        known.coalesce(1).write.mode("overwrite").parquet(path)
        self._folder.write_json(f"{_OPEN}/{batch}.json", {"watermark": watermark})
        for name in (f"{batch - 2}", f"{batch - 2}.json"):
            self._folder.remove(f"{_OPEN}/{name}")


def _later(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return max(known, default=None)
