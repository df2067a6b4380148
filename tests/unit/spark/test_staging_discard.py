"""What becomes of the staged rows of a write that is aborted."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

import shmq
from shmq.api.names import staging_name
from shmq.client.local.broker import LocalBroker
from shmq.spark.queue import staging
from shmq.spark.queue.kind import QUEUE
from shmq.spark.queue.staging import Staged
from shmq.spark.queue.writer import QueueSink
from shmq.spark.shared.options import WRITE
from shmq.spark.shared.sink import BatchId

GONE = [f"gone-{n}" for n in range(30)]


def test_queues_that_are_deleted_meanwhile_do_not_keep_the_staged_rows_of_the_others(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_queue("orders", dead_letter=None).staged_publisher("run").stage(0, "a", [b"x"])
    staged = staging_name("orders", "run")
    names = broker.queue_names()
    assert staged in names
    monkeypatch.setattr(LocalBroker, "queue_names", lambda _: [*names, *GONE])
    schema = StructType().add("value", "binary").add("topic", "string")
    sink = QueueSink.of(QUEUE.parse({"url": broker.namespace}, WRITE), schema)

    message = Staged(BatchId("run", 0, "a", 0), ("orders", *GONE), 1)
    staging.discard(sink, "run", [message])

    monkeypatch.undo()
    assert broker.queue_names() == ["orders"]
