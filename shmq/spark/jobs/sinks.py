"""The sinks of a job: they write its batches in any format of Spark's.

After a crash Spark runs the batch again that was cut off. Files, queues, streams and Delta take
each batch once; to other formats such a batch is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from shmq.spark.jobs.endpoints import FILES, Sink
from shmq.spark.jobs.table import FileTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The setting of a session that names the file in which writes say what they wait for.
WAIT_FILE: Final = "spark.shmq.waitFile"

#: Writes the rows of a batch, given the query's id and the batch's number. After a crash it is
#: called again with the same arguments.
Put = Callable[["DataFrame", str, int], None]

#: In how many folders a task has files open; up to that number Spark need not sort the rows.
_OPEN_FOLDERS: Final = "64"


def of(session: SparkSession, sink: Sink, name: str, folders: Sequence[str] = ()) -> Put:
    """What writes to the sink; the ``name`` is unique within the job.

    Files are in folders by the columns ``folders``, unless the sink names others.
    """
    if sink.format in FILES:
        session.conf.set("spark.sql.maxConcurrentOutputFileWriters", _OPEN_FOLDERS)
        table = FileTable(session, str(sink.path), sink.format, sink.options)
        return lambda rows, query, batch: table.add(
            rows, query, batch, sink.partition_by or folders
        )

    def put(rows: DataFrame, query: str, batch: int) -> None:
        writer: Any = rows.write.format(sink.format).mode(sink.mode).options(**sink.options)
        if sink.partition_by is not None:
            writer = writer.partitionBy(*sink.partition_by)
        writer = writer.options(**_make_batch_options(sink.format, f"{query}/{name}", batch))
        if sink.format == "shmq" and (wait_file := session.conf.get(WAIT_FILE, None)):
            writer = writer.option("waitFile", wait_file)
        writer.save(*(() if sink.path is None else (str(sink.path),)))

    return put


def _make_batch_options(form: str, publisher: str, batch: int) -> dict[str, Any]:
    """The options by which a format knows a batch that it has."""
    if form == "shmq":
        return {"publisher": publisher, "batch": batch}
    if form == "delta":
        return {"txnAppId": publisher, "txnVersion": batch}
    return {}
