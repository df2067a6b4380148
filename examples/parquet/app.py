"""A pipeline into Parquet on Spark: each message of a queue is in the files once.

After ``pip install 'shmq[spark]'``, which brings Java if there is none:

    python app.py put --orders 1000     # something to do
    python app.py run orders/           # until Ctrl-C; again after any end, it goes on
    python app.py run orders/ --once    # what is there now, for a scheduler
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import shmq

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: A file: once it is in the folder, no further batch begins.
STOP = "stop"
#: How long a batch may take to its end after Ctrl-C, in seconds; longer, and it is done again.
PATIENCE = 60
SCHEMA = "order BIGINT NOT NULL, item STRING NOT NULL, price DOUBLE"


def put(count: int) -> None:
    with shmq.connect() as broker:
        orders = broker.ensure_queue("orders", capacity=100_000)
        bodies = [{"order": n, "item": ("tea", "jam")[n % 2], "price": n / 2} for n in range(count)]
        done = orders.put_many(bodies, timeout=30)
        if done < count:
            raise SystemExit(f"the queue is full: {done} of {count} were put. Run the pipeline")


def started(folder: Path, *, once: bool) -> StreamingQuery:
    """The query; a message is acknowledged once its batch is in the files."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy, and `put` works without

    import shmq.spark  # noqa: PLC0415

    spark = shmq.spark.session("orders")
    stop = str(folder / STOP)
    source = spark.readStream.format("shmq").options(subscribe="orders", columns="all")
    rows = source.option("stopFile", stop).load()
    fields = shmq.spark.decode(rows, SCHEMA, into="fields", bad="keep")
    typed = fields.select(
        "offset", "timestamp", f.to_date("timestamp").alias("date"), "fields.*",
        "decode_problem",  # why a body is not an order: null for those that are
    )  # fmt: skip
    writer = typed.writeStream.format("parquet").partitionBy("date")
    writer = writer.option("path", str(folder / "data"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="5 seconds").start()


def run(folder: Path, *, once: bool) -> None:
    with shmq.connect() as broker:
        broker.ensure_queue("orders", capacity=100_000)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STOP).unlink(missing_ok=True)
    query = started(folder, once=once)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # in place of Spark's own handler
        signal.signal(number, lambda *_: stop.set())
    try:
        while not query.awaitTermination(1) and not stop.is_set():  # raises if it has failed
            pass
        (folder / STOP).touch()
        give_up = time.monotonic() + PATIENCE
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up:
            query.awaitTermination(1)  # the batch at work; the next start goes on behind it
    finally:
        query.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("put").add_argument("--orders", type=int, default=1000)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--once", action="store_true")
    given = parser.parse_args()
    if given.command == "put":
        put(given.orders)
    else:
        run(given.folder, once=given.once)


if __name__ == "__main__":
    main()
