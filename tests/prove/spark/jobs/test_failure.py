"""What failed in a job is said in one line, with the cause and the remedy."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

import shmq
from shmq import Forbidden, NoSuchQueue, ShmqError
from shmq.spark.jobs.archive import Archive
from shmq.spark.jobs.failure import failure_of
from shmq.spark.jobs.job import Stream, each_batch
from shmq.spark.jobs.runner import run
from tests.prove.spark.jobs.tools import queue_of, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def counting() -> Stream[Archive]:
    def build(session: SparkSession, config: Archive, stop_file: str) -> DataStreamWriter:
        rows = config.source.read(session, stop_file)
        return each_batch(rows, lambda batch, _, number: print(number, batch.count()))

    return Stream(name="counting", config=Archive, build=build)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (
            (
                "[STREAM_FAILED] Query [id = …] terminated with exception: …\n"
                "pyspark.errors.exceptions.base.PythonException: \n"
                "Traceback (most recent call last):\n"
                '  File "worker.py", line 1, in main\n'
                "    raise Error: no\n"
                "shmq.errors.NoSuchQueue: queue 'a' does not exist: create it\n SQLSTATE: 38000"
            ),
            NoSuchQueue,
            "queue 'a' does not exist: create it",
        ),
        (
            (
                "Traceback (most recent call last):\n  File\n"
                "shmq.errors.Forbidden: the token 'x' has no right to consume"
            ),
            Forbidden,
            "the token 'x' has no right to consume",
        ),
        (
            "Traceback (most recent call last):\n  File\nValueError: 7 is odd\n\tat java.lang",
            ShmqError,
            "ValueError: 7 is odd",
        ),
        (
            (
                "An error occurred while calling o71.start.\n"
                ": java.io.IOException: mkdir of file:/proc/ck failed\n\tat org.apache.hadoop.fs.X"
            ),
            ShmqError,
            "Spark: IOException: mkdir of file:/proc/ck failed; name a folder that can be written",
        ),
        (
            (
                "An error occurred while calling o1.start.\n"
                ": org.apache.spark.SparkException: [CANNOT_LOAD] Error loading for path=s3a://b/ck."
                "  SQLSTATE: 58030\n\tat a.b.C\nCaused by: java.lang.ClassNotFoundException: Class "
                "org.apache.hadoop.fs.s3a.S3A not found\n\t... 9 more\n"
            ),
            ShmqError,
            (
                "Spark: [CANNOT_LOAD] Error loading for path=s3a://b/ck: ClassNotFoundException: "
                "Class org.apache.hadoop.fs.s3a.S3A not found; name the package that has it"
            ),
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Reason: "
                "Traceback (most recent call last):\n  File\n    raise Py4JJavaError(\n"
                "py4j.protocol.Py4JJavaError: An error occurred while calling o183.parquet.\n"
                ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing "
                "rows to file:/small/out. SQLSTATE: 58030\n\tat a.b.C\n"
                "Caused by: a.b.Outer$Inner: Unable to close resource\n"
                "\tSuppressed: a.b.FSError: of no cause\n\tCaused by: c.D: of none\n"
                "Caused by: java.io.IOException: No space left on device\n"
            ),
            ShmqError,
            (
                "Spark: [TASK_WRITE_FAILED] Task failed while writing rows to file:/small/out: "
                "IOException: No space left on device; free space for the checkpoint"
            ),
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
                "No space left on device SQLSTATE: XXKST\n=== Streaming Query ==="
            ),
            ShmqError,
            "Spark: No space left on device; free space for the checkpoint",
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
                "Python worker failed to connect back. SQLSTATE: XXKST\n=== Streaming Query ==="
            ),
            ShmqError,
            "Spark: Python worker failed to connect back; the machine was too busy to start a Py",
        ),
        (
            (
                "An error occurred while calling o496.save.\n"
                ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in "
                "stage 5.0 failed 2 times, most recent failure: Lost task 0.1 in stage 5.0 (TID 7) "
                "(10.0.0.2 executor driver): org.apache.spark.SparkException: Python worker exited "
                "unexpectedly (crashed). Consider setting 'spark.python.worker.faulthandler.enabled"
                "' configuration to 'true' for the better Python traceback.\n\tat a.b.C\n"
                "Caused by: java.net.SocketException: Connection reset\n\tat a.b.C"
            ),
            ShmqError,
            (
                "Spark: at 10.0.0.2: Python worker exited unexpectedly (crashed): SocketException: "
                "Connection reset; a Python process of Spark's was killed or has crashed: start the"
            ),
        ),
        (
            (
                "An error occurred while calling o1.load.\n: java.io.IOException: Stream closed\n"
                "\tat java.base/a.B.c(B.java:1)\n\tat org.apache.spark.api.python.PythonWorkerF.s\n"
            ),
            ShmqError,
            "Spark: IOException: Stream closed; a Python process of Spark's was killed",
        ),
        (
            (
                "An error occurred while calling o4.save.\n"
                ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in "
                "stage 5.0 failed 2 times, most recent failure: Lost task 0.1 in stage 5.0 (TID 7) "
                "(10.0.0.2 executor 1): java.net.UnknownHostException: db.example\n\tat a.b.C"
            ),
            ShmqError,
            "Spark: SparkException: at 10.0.0.2: java.net.UnknownHostException: db.example; check",
        ),
        (
            (
                "An error occurred while calling o2.sql.\n: java.io.FileNotFoundException: File "
                "file:/tmp/spark-events does not exist\n\tat a.b.C"
            ),
            ShmqError,
            "Spark: FileNotFoundException: File file:/tmp/spark-events does not exist; name a",
        ),
        (
            "An error occurred while calling o1.save.\n: java.io.EOFException\n\tat org.db.R.read",
            ShmqError,
            "Spark: EOFException; log =",
        ),
        (
            (
                "An error occurred while calling o2.save.\n: java.io.FileNotFoundException: File "
                "file:/a/_staging/7.d29/_temporary/0 does not exist\n\tat a.b.C"
            ),
            ShmqError,
            (
                "Spark: FileNotFoundException: File file:/a/_staging/7.d29/_temporary/0 does not "
                "exist; it was removed, as by a second run of the job"
            ),
        ),
        (
            (
                "An error occurred while calling o1.start.\n: org.apache.hadoop.fs.FileAlready"
                "ExistsException: Destination exists and is not a directory: /a/checkpoint\n"
            ),
            ShmqError,
            (
                "Spark: FileAlreadyExistsException: Destination exists and is not a directory: "
                "/a/checkpoint; name a folder that can be written"
            ),
        ),
        (
            (
                "An error occurred while calling o1.x.\n: a.b.AssertionError: assertion failed"
                "\n\tat scala.Predef$.assert(P:1)\n\tat org.apache.spark.MicroBatchExecution.p(M:1)"
            ),
            ShmqError,
            "Spark: AssertionError: assertion failed; the checkpoint is damaged: put back",
        ),
        ("[JAVA_GATEWAY_EXITED] Java gateway", ShmqError, "Spark: [JAVA_GATEWAY_EXITED] Java g"),
        ("[PATH_NOT_FOUND] Path does not exist: x\n at y", ShmqError, "Spark: [PATH_NOT_FOUND] P"),
        ("", ShmqError, "Spark: RuntimeError"),
    ],
)
def test_what_failed_is_the_error_at_the_root_in_one_line(
    text: str, kind: type[ShmqError], told: str
) -> None:
    found = failure_of(RuntimeError(text))

    assert type(found) is kind
    assert str(found).startswith(told)
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("said", "cause", "told"),
    [
        (
            "No space left",
            "java.io.IOException: No space left",
            "IOException: No space left; log =",
        ),
        (
            "File file:/a/offsets does not exist",
            "java.io.FileNotFoundException: File file:/a/offsets does not exist",
            "FileNotFoundException: File file:/a/offsets does not exist; it was removed",
        ),
        ("Nothing works", "a.b.Broken: the disk", "Nothing works: Broken: the disk; log ="),
        (
            "Failed to read log file file:/a/offsets/1. Incomplete log file",
            "java.lang.IllegalStateException: Incomplete log file",
            (
                "Failed to read log file file:/a/offsets/1: IllegalStateException: Incomplete log "
                "file; the checkpoint is damaged: put back a copy of it, or name a new one"
            ),
        ),
        ("a.b.Outer: the disk", "a.b.Broken: the disk", "Broken: the disk; log ="),
    ],
)
def test_the_root_of_a_failed_query_is_in_its_stack_trace(said: str, cause: str, told: str) -> None:
    error = RuntimeError(
        f"[STREAM_FAILED] Query [id = 1] terminated with exception: {said} SQLSTATE: XXKST\n"
        f"=== Streaming Query ===\nIdentifier: archive"
    )
    stack = f"a.b.QueryException: {said}\n\tat a.b.C\nCaused by: {cause}\n\t... 1 more\n"
    vars(error)["_stackTrace"] = stack

    assert str(failure_of(error)).startswith(f"Spark: {told}")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("kill -KILL $$", "was killed by SIGKILL, as by a host that has no memory left: start"),
        ("kill -TERM $$", "was terminated by SIGTERM: start the job again: one"),
        ("exit 143", "was terminated by SIGTERM: start the job again: one"),
        ("exit 3", "ended with status 3: start the job again: one with a checkpoint"),
    ],
)
@pytest.mark.parametrize(
    "seen",
    [
        ConnectionRefusedError(111, "Connection refused"),
        RuntimeError("Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext"),
        RuntimeError("Job 3 cancelled because SparkContext was shut down"),
    ],
    ids=["connection", "stopped", "cancelled"],
)
def test_a_java_that_has_ended_is_the_cause_of_what_failed(
    monkeypatch: pytest.MonkeyPatch, command: str, told: str, seen: Exception
) -> None:
    with subprocess.Popen(["sh", "-c", f"sleep 0.1; {command}"]) as java:
        monkeypatch.setattr("pyspark.SparkContext._gateway", SimpleNamespace(proc=java))
        error = failure_of(seen)

    assert str(error).startswith(f"Java, in which Spark runs (process {java.pid}), {told}")


def _command(process: psutil.Process) -> list[str]:
    """Its command; empty if it has ended."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def test_a_query_whose_source_lost_its_python_process_says_so(
    spark: SparkSession, queue: shmq.Queue, namespace: str, checkpoint: str
) -> None:
    """Java has an exception without a message then."""

    def build(session: SparkSession, config: Archive, stop_file: str) -> DataStreamWriter:
        def put(batch: DataFrame, _: str, number: int) -> None:
            for child in psutil.Process().children(recursive=True):
                if "streaming_source" in " ".join(_command(child)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()

        return each_batch(config.source.read(session, stop_file), put)

    job = Stream(name="killing", config=Archive, build=build)
    with pytest.raises(ShmqError) as found:
        run(job, settings(checkpoint, queue_of(namespace)), spark, lambda _: None, lambda: False)

    assert re.fullmatch(
        r"Spark: \w+(: .+)?; a Python process of Spark's was killed or has crashed: "
        r"start the job again: one with a checkpoint continues from it",
        str(found.value),
    )


def test_a_checkpoint_that_cannot_be_written_is_told_with_its_place(
    spark: SparkSession, queue: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    config = settings(tmp_path / "file/checkpoint", queue_of(namespace))
    with pytest.raises(ShmqError) as found:
        run(counting(), config, spark, lambda _: None, lambda: False)

    assert str(found.value) == (
        f"Spark: ParentNotDirectoryException: Parent path is not a directory: "
        f"file:{tmp_path}/file; name a folder that can be written by the user who runs the job"
    )


def test_a_class_that_java_does_not_have_is_told_by_its_name(
    spark: SparkSession, queue: shmq.Queue, namespace: str
) -> None:
    config = settings("s3a://bucket/checkpoint", queue_of(namespace))
    with pytest.raises(ShmqError) as found:
        run(counting(), config, spark, lambda _: None, lambda: False)

    told = str(found.value)
    assert "path=s3a://bucket/checkpoint: ClassNotFoundException: Class org.apache.hadoop" in told
    assert "name the package that has it in [spark.conf]" in told
    assert "calling o" not in told


def test_an_error_of_shmqs_own_stays_as_it_is() -> None:
    error = NoSuchQueue("queue 'a' does not exist")

    assert failure_of(error) is error
