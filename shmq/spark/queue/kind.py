"""A queue behind ``format("shmq")``: its options, and what makes its readers and writers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from shmq.spark.queue import writer
from shmq.spark.queue.reader import QueueReader, QueueSourceStreamingReader
from shmq.spark.queue.writer import QueueSink
from shmq.spark.shared import address, columns, options, query_page
from shmq.spark.shared.kind import KAFKAS, Kind
from shmq.spark.shared.options import BATCH, KIND, STREAM, Option

__all__ = ["QUEUE"]

_READ: Final = frozenset({BATCH, STREAM})
_BATCH: Final = frozenset({BATCH})
_STREAM: Final = frozenset({STREAM})

_OPTIONS: Final = (
    *address.OPTIONS,
    KIND,
    Option("subscribe", options.names, None, _READ),
    Option("subscribePattern", options.pattern, None, _READ),
    Option("columns", options.several_of(*columns.NAMES, columns.ALL), None, _READ),
    Option("includeHeaders", options.truth, False, _READ),
    Option("states", options.several_of(*columns.STATES), columns.STATES, _BATCH),
    Option("startingTimestamp", options.moment, None, _BATCH),
    Option("endingTimestamp", options.moment, None, _BATCH),
    Option("minPartitions", options.whole(1, 10_000), None, _READ),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, _READ),
    Option("maxOffsetsPerTrigger", options.whole(1, 1 << 24), 500_000, _STREAM),
    Option("minOffsetsPerTrigger", options.whole(1, 1 << 24), None, _STREAM),
    Option("maxTriggerDelay", options.seconds(0.001, 1e6), 900.0, _STREAM),
    Option("uiWebUrl", query_page.address, None, _STREAM),
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
        **KAFKAS,
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
            ("group", "groupidprefix", "kafka.group.id"),
            "a queue's consumers need no group, each message goes to one of them: leave it out",
        ),
    }
)

#: The kind of queues.
QUEUE: Final = Kind(
    name="queue",
    options=_OPTIONS,
    refused=_REFUSED,
    columns=columns.chosen,
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
