"""A stream behind ``format("shmq")``: its options, and what makes its readers and writers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from shmq.spark.shared import columns, options
from shmq.spark.shared.kind import KAFKAS, SHARED, Kind
from shmq.spark.shared.options import BATCH, READ, STREAM, Option
from shmq.spark.shared.sink import StreamingWriter, Writer
from shmq.spark.shared.subscription import assigned
from shmq.spark.stream import bounds, writer
from shmq.spark.stream.reader import StreamBatchReader, StreamSourceStreamingReader
from shmq.spark.stream.writer import StreamSink

_COLUMNS: Final = (*columns.KAFKA, "headers", "codec")

_OPTIONS: Final = (
    *SHARED,
    Option("assign", assigned, None, READ),
    Option("columns", options.several_of(*_COLUMNS, columns.ALL), None, READ),
    Option("startingOffsets", bounds.offsets, None, READ),
    Option("startingTimestamp", bounds.timestamp, None, READ),
    Option("startingOffsetsByTimestamp", bounds.timestamps, None, READ),
    Option("startingOffsetsByTimestampStrategy", options.one_of("error", "latest"), "error", READ),
    Option("endingOffsets", bounds.offsets, None, BATCH),
    Option("endingTimestamp", bounds.timestamp, None, BATCH),
    Option("endingOffsetsByTimestamp", bounds.timestamps, None, BATCH),
    Option("maxOffsetsPerTrigger", options.whole(1, 1 << 40), None, STREAM),
    Option("minOffsetsPerTrigger", options.whole(1, 1 << 40), None, STREAM),
    Option("failOnDataLoss", options.truth, True, READ),
    Option("group", options.text, None, STREAM),
    Option("groupIdPrefix", options.text, None, STREAM),
    *writer.OPTIONS,
)

_TAKES_NOTHING: Final = (
    "it is of queues, and a read takes nothing from a stream: leave it out, or name a queue"
)

_REFUSED: Final = MappingProxyType(
    {
        **KAFKAS,
        **dict.fromkeys(("states", "leasetimeout", "maxbytespertrigger"), _TAKES_NOTHING),
        **dict.fromkeys(
            ("staged", "stagingbytes"),
            "a stream takes what each task has at once, and once: leave it out",
        ),
    }
)


#: The kind of streams.
STREAM_KIND: Final = Kind(
    name="stream",
    options=_OPTIONS,
    refused=_REFUSED,
    columns=_COLUMNS,
    make_reader=StreamBatchReader,
    make_stream_reader=StreamSourceStreamingReader,
    make_sink=StreamSink.of,
    make_writer=Writer,
    make_stream_writer=StreamingWriter,
    no_overwrite="mode('overwrite') would remove what others have appended, and nothing is removed "
    "from a stream: use mode('append')",
    no_complete="outputMode('complete') gives the whole result again with each batch, and a stream "
    "keeps what it got: use outputMode('update'), whose newest record of a key counts, or "
    "outputMode('append') with a watermark",
)
