"""A queue behind ``format("shmq")``: its options, and what makes its readers and writers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from shmq.spark.queue import writer
from shmq.spark.queue.reader import QueueReader, QueueSourceStreamingReader
from shmq.spark.queue.writer import QueueSink
from shmq.spark.shared import columns, options
from shmq.spark.shared.kind import KAFKAS, SHARED, Kind
from shmq.spark.shared.options import BATCH, READ, STREAM, Option

_OPTIONS: Final = (
    *SHARED,
    Option("columns", options.several_of(*columns.NAMES, columns.ALL), None, READ),
    Option("states", options.several_of(*columns.STATES), columns.STATES, BATCH),
    Option("startingTimestamp", options.moment, None, BATCH),
    Option("endingTimestamp", options.moment, None, BATCH),
    Option("maxOffsetsPerTrigger", options.whole(1, 1 << 24), 500_000, STREAM),
    Option("minOffsetsPerTrigger", options.whole(1, 1 << 24), None, STREAM),
    Option("maxBytesPerTrigger", options.size(1, 1 << 40), 256 << 20, STREAM),
    Option("leaseTimeout", options.seconds(1, 1e6), 600.0, STREAM),
    Option("failOnDataLoss", options.truth, True, STREAM),
    *writer.OPTIONS,
)

_NO_OFFSETS: Final = (
    "a queue has no offsets to begin or end at, it delivers what is in it: leave it out"
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
    columns=columns.NAMES,
    make_reader=QueueReader,
    make_stream_reader=QueueSourceStreamingReader,
    make_sink=QueueSink.of,
    make_writer=writer.QueueWriter,
    make_stream_writer=writer.QueueSinkStreamingWriter,
    no_overwrite="mode('overwrite') would remove what others have put, and a queue's messages are "
    "for its consumers: use mode('append'), and shmq purge before it to begin with an empty one",
    no_complete="outputMode('complete') gives the whole result again with each batch, and a queue "
    "keeps what it got: use outputMode('append') with a watermark, or foreachBatch",
)
