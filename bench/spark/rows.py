"""The rows on Spark, in the order of their table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from bench.row import Row, at_least, at_most, times, within
from bench.spark.figures import FIRST, GROWTH, JVM, MEDIAN, PYTHON, RATE, SIZE, TAIL, WHOLE
from bench.spark.files import Dmsq, Parquet, Ready
from bench.spark.latency import PACE, Latency
from bench.spark.log import PARTITIONS, ArchiveStream, Copy, CopyNothing, Read
from bench.spark.memory import Memory, StreamMemory
from bench.spark.peek import Empty, Peek
from bench.spark.start import FirstOfRange, FirstRow
from bench.spark.stream import Archive
from bench.spark.write import Write, WriteBack, WriteNothing

#: What a row is compared with: the same row of a Python source or sink that does nothing.
BARE_READ, ADORNED_READ, BARE_WRITE, ADORNED_WRITE = 0.9, 0.7, 0.9, 0.6

PASSED: Final = "what Spark does with each Arrow batch of a Python source"


def peek_row() -> Row:
    """Reading a queue or a stream without leasing; each next to as many tasks that read nothing."""
    adorned = (False, True)
    queues = [(Peek(adorned=each), Empty(adorned=each)) for each in adorned]
    streams = [(Read(adorned=each), Empty(adorned=each, tasks=PARTITIONS)) for each in adorned]
    bars = [
        times(ours.label, empty.label, least)
        for pairs in (queues, streams)
        for least, (ours, empty) in zip((BARE_READ, ADORNED_READ), pairs, strict=True)
    ]
    return Row(
        key="spark-peek",
        title=f"A queue and a stream read as a batch, {SIZE} B values",
        contestants=[*itertools.chain(*queues, *streams)],
        figures=(RATE,),
        bars=[at_least(queues[0][0].label, 1.5e6, "rows/s"), *bars],
        limit=PASSED,
    )


def files_row() -> Row:
    """Files to Parquet."""
    ours, theirs = Dmsq(), Parquet()
    return Row(
        key="spark-dmsq",
        title=f"The files of a queue written to Parquet, {SIZE} B values",
        contestants=[ours, theirs, Ready()],
        figures=(RATE,),
        bars=[times(ours.label, theirs.label, 0.8)],
        limit="encoding Parquet, and what Spark does with each Arrow batch of a Python source",
    )


def archive_row() -> Row:
    """A live queue to Parquet."""
    ours = Archive()
    return Row(
        key="spark-archive",
        title=f"A queue leased, written to Parquet and acknowledged, {SIZE} B values",
        contestants=[ours],
        figures=(RATE,),
        bars=[at_least(ours.label, 4e5, "rows/s")],
        limit="encoding Parquet, and the files of the checkpoint for each batch",
    )


def write_row() -> Row:
    """Rows to a queue."""
    pairs = [(WriteBack(adorned=each), WriteNothing(adorned=each)) for each in (False, True)]
    return Row(
        key="spark-write",
        title=f"Rows written to a queue, {SIZE} B values",
        contestants=[*itertools.chain(*pairs), Write()],
        figures=(RATE,),
        bars=[
            times(ours.label, empty.label, least)
            for least, (ours, empty) in zip((BARE_WRITE, ADORNED_WRITE), pairs, strict=True)
        ],
        limit="a put of each row into the staged chunks, and one more when they are published",
    )


def stream_archive_row() -> Row:
    """A live stream to Parquet."""
    ours = ArchiveStream()
    return Row(
        key="spark-stream-archive",
        title=f"A stream written to Parquet, {SIZE} B values",
        contestants=[ours],
        figures=(RATE, WHOLE),
        bars=[at_least(ours.label, 7e5, "rows/s")],
        limit="encoding Parquet",
    )


def stream_copy_row() -> Row:
    """A stream to another stream."""
    pairs = [(Copy(adorned=each), CopyNothing(adorned=each)) for each in (False, True)]
    return Row(
        key="spark-stream-write",
        title=f"A stream read and written to another, {SIZE} B values",
        contestants=[*itertools.chain(*pairs)],
        figures=(RATE,),
        bars=[
            times(ours.label, empty.label, least)
            for least, (ours, empty) in zip((BARE_WRITE, ADORNED_WRITE), pairs, strict=True)
        ],
        limit="the way of each row through the JVM, from one Python process to the other",
    )


def start_row() -> Row:
    """A fresh session."""
    ours, spark = FirstRow(), FirstOfRange()
    return Row(
        key="spark-start",
        title="The first row of a fresh session",
        contestants=[ours, spark],
        figures=(FIRST,),
        bars=[within(ours.label, spark.label, 2, FIRST.key)],
        limit="the start of the JVM, and of the first Python worker",
    )


def latency_row() -> Row:
    """The latency of a stream."""
    ours = Latency()
    return Row(
        key="spark-latency",
        title=f"Latency through a streaming query, {PACE:,} messages/s, {SIZE} B values",
        contestants=[ours],
        figures=(MEDIAN, TAIL),
        bars=[at_most(ours.label, 400, "ms", MEDIAN.key)],
        limit="half of a batch's time, then a batch: Spark writes its checkpoint twice for each",
    )


def memory_row() -> Row:
    """The memory of running streams."""
    queue, stream = Memory(), StreamMemory()
    return Row(
        key="spark-memory",
        title=f"Memory of driver and executors while rows stream through, {SIZE} B values",
        contestants=[queue, stream],
        figures=(JVM, PYTHON, GROWTH, RATE),
        bars=[at_most(each.label, 1.1, "x", GROWTH.key) for each in (queue, stream)],
        limit="the heap that the JVM is given, and the bytes of a batch in each Python worker",
        visits=1,
    )


SPARK: tuple[Callable[[], Row], ...] = (
    peek_row,
    files_row,
    archive_row,
    write_row,
    stream_archive_row,
    stream_copy_row,
    start_row,
    latency_row,
    memory_row,
)
