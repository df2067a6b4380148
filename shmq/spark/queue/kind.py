"""A queue behind ``format("shmq")``: its options, and what makes its readers and writers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from shmq.spark.queue import writer
from shmq.spark.queue.reader import QueueReader, QueueSourceStreamingReader
from shmq.spark.queue.writer import QueueSink
from shmq.spark.shared import address, columns, options
from shmq.spark.shared.kind import Kind
from shmq.spark.shared.options import BATCH, KIND, STREAM, Option

__all__ = ["QUEUE"]

_READ: Final = frozenset({BATCH, STREAM})
_STREAM: Final = frozenset({STREAM})

_OPTIONS: Final = (
    *address.OPTIONS,
    KIND,
    Option("subscribe", options.names, None, _READ),
    Option("subscribePattern", options.pattern, None, _READ),
    Option("columns", options.several_of(*columns.NAMES), None, _READ),
    Option("includeHeaders", options.truth, False, _READ),
    Option("states", options.several_of(*columns.STATES), columns.STATES, frozenset({BATCH})),
    Option("minPartitions", options.whole(1, 10_000), None, _READ),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, _READ),
    Option("maxOffsetsPerTrigger", options.whole(1, 1 << 24), 500_000, _STREAM),
    Option("maxBytesPerTrigger", options.size(1, 1 << 40), 256 << 20, _STREAM),
    Option("leaseTimeout", options.seconds(1, 1e6), 600.0, _STREAM),
    Option("failOnDataLoss", options.truth, True, _STREAM),
    options.STOP_FILE,
    *writer.OPTIONS,
)

_NO_OFFSETS: Final = (
    "a queue has no offsets to begin or end at, it hands out what is in it: leave it out"
)

_REFUSED: Final = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "assign",
                "startingoffsets",
                "endingoffsets",
                "startingtimestamp",
                "endingtimestamp",
                "startingoffsetsbytimestamp",
                "endingoffsetsbytimestamp",
                "startingoffsetsbytimestampstrategy",
            ),
            _NO_OFFSETS,
        ),
        **dict.fromkeys(
            ("minoffsetspertrigger", "maxtriggerdelay"),
            "choose a longer trigger instead: .trigger(processingTime='10 seconds')",
        ),
        "path": "name the queue as .option('subscribe', NAME), and to write as "
        ".option('topic', NAME)",
        "kafka.bootstrap.servers": "say where the queues are as .option('url', …)",
        "namespace": "say it as .option('url', NAMESPACE)",
    }
)

#: The kind of queues.
QUEUE: Final = Kind(
    name="queue",
    options=_OPTIONS,
    refused=_REFUSED,
    columns=lambda chosen: columns.chosen(chosen["columns"], chosen["includeHeaders"]),
    make_reader=QueueReader,
    make_stream_reader=QueueSourceStreamingReader,
    make_sink=QueueSink.of,
    make_writer=writer.QueueWriter,
    make_stream_writer=writer.QueueSinkStreamingWriter,
    no_overwrite="mode('overwrite') would remove what others have put, and a queue's messages are "
    "for its consumers: use mode('append'), and shmq purge before it to begin with an empty one",
    no_complete="outputMode('complete') gives the whole result anew with each batch, and a queue "
    "keeps what it got: use outputMode('append') with a watermark, or foreachBatch",
)
