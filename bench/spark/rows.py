"""The rows on Spark, in the order of their table."""

from __future__ import annotations

from collections.abc import Callable

from bench.row import Row, at_least, at_most, times
from bench.spark.figures import GROWTH, JVM, MEDIAN, PYTHON, RATE, SIZE, TAIL, WHOLE
from bench.spark.files import Dmsq, Parquet
from bench.spark.latency import PACE, Latency
from bench.spark.log import ArchiveStream, Copy, Read
from bench.spark.memory import Memory
from bench.spark.peek import Empty, Peek
from bench.spark.stream import Archive
from bench.spark.write import Write, WriteBack


def peek_row() -> Row:
    """Reading without leasing."""
    ours, empty = Peek(), Empty()
    return Row(
        key="spark-peek",
        title=f"A queue read as a batch, {SIZE} B values",
        contestants=[ours, empty],
        figures=(RATE,),
        bars=[at_least(ours.label, 1.5e6, "rows/s"), times(ours.label, empty.label, 0.8)],
        limit="what Spark does with each Arrow batch of a Python source",
    )


def files_row() -> Row:
    """Files to Parquet."""
    ours, theirs = Dmsq(), Parquet()
    return Row(
        key="spark-dmsq",
        title=f"The files of a queue made Parquet, {SIZE} B values",
        contestants=[ours, theirs],
        figures=(RATE,),
        bars=[times(ours.label, theirs.label, 0.8)],
        limit="encoding Parquet",
    )


def archive_row() -> Row:
    """A live queue to Parquet."""
    ours = Archive()
    return Row(
        key="spark-archive",
        title=f"A queue leased, made Parquet and acknowledged, {SIZE} B values",
        contestants=[ours],
        figures=(RATE,),
        bars=[at_least(ours.label, 4e5, "rows/s")],
        limit="encoding Parquet, and the files of the checkpoint for each batch",
    )


def write_row() -> Row:
    """Rows to a queue."""
    back, made = WriteBack(), Write()
    return Row(
        key="spark-write",
        title=f"Rows written to a queue, {SIZE} B values",
        contestants=[back, made],
        figures=(RATE,),
        bars=[at_least(back.label, 4e5, "rows/s")],
        limit="a put of each row into the staged chunks, and one more when they are published",
    )


def stream_row() -> Row:
    """A stream, read as a batch."""
    ours = Read()
    return Row(
        key="spark-stream",
        title=f"A stream read as a batch, 7 columns, {SIZE} B values",
        contestants=[ours],
        figures=(RATE,),
        bars=[at_least(ours.label, 2e6, "rows/s")],
        limit="what Spark does with each Arrow batch of a Python source",
    )


def stream_archive_row() -> Row:
    """A live stream to Parquet."""
    ours = ArchiveStream()
    return Row(
        key="spark-stream-archive",
        title=f"A stream made Parquet, {SIZE} B values",
        contestants=[ours],
        figures=(RATE, WHOLE),
        bars=[at_least(ours.label, 7e5, "rows/s")],
        limit="encoding Parquet",
    )


def stream_copy_row() -> Row:
    """A stream to another stream."""
    ours = Copy()
    return Row(
        key="spark-stream-write",
        title=f"A stream read and written to another, {SIZE} B values",
        contestants=[ours],
        figures=(RATE,),
        bars=[at_least(ours.label, 4e5, "rows/s")],
        limit="the way of each row through the JVM, from one Python process to the other",
    )


def latency_row() -> Row:
    """The latency of a stream."""
    ours = Latency()
    return Row(
        key="spark-latency",
        title=f"A message's way through a stream, {PACE:,} messages/s, {SIZE} B values",
        contestants=[ours],
        figures=(MEDIAN, TAIL),
        bars=[at_most(ours.label, 400, "ms", MEDIAN.key)],
        limit="half of a batch's time, then a batch: Spark writes its checkpoint twice for each",
    )


def memory_row() -> Row:
    """The memory of a running stream."""
    ours = Memory()
    return Row(
        key="spark-memory",
        title=f"Memory of driver and executors while rows stream through, {SIZE} B values",
        contestants=[ours],
        figures=(JVM, PYTHON, GROWTH, RATE),
        bars=[at_most(ours.label, 1.1, "x", GROWTH.key)],
        limit="the heap that the JVM is given, and the bytes of a batch in each Python worker",
        visits=1,
    )


SPARK: tuple[Callable[[], Row], ...] = (
    peek_row,
    files_row,
    archive_row,
    write_row,
    stream_row,
    stream_archive_row,
    stream_copy_row,
    latency_row,
    memory_row,
)
