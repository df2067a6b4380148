"""A stream behind ``format("shmq")``: its options, and what makes its readers and writers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from shmq.spark.shared import address, columns, options, query_page
from shmq.spark.shared.kind import KAFKAS, Kind
from shmq.spark.shared.options import BATCH, KIND, STREAM, Option
from shmq.spark.shared.sink import StreamingWriter, Writer
from shmq.spark.shared.subscription import assigned
from shmq.spark.stream import bounds, writer
from shmq.spark.stream.reader import StreamBatchReader, StreamSourceStreamingReader
from shmq.spark.stream.writer import StreamSink

__all__ = ["STREAM_KIND"]

_READ: Final = frozenset({BATCH, STREAM})
_BATCH: Final = frozenset({BATCH})
_STREAM: Final = frozenset({STREAM})

_COLUMNS: Final = (*columns.KAFKA, "headers", "codec")

_OPTIONS: Final = (
    *address.OPTIONS,
    KIND,
    Option("subscribe", options.names, None, _READ),
    Option("subscribePattern", options.pattern, None, _READ),
    Option("assign", assigned, None, _READ),
    Option("columns", options.several_of(*_COLUMNS, columns.ALL), None, _READ),
    Option("includeHeaders", options.truth, False, _READ),
    Option("startingOffsets", bounds.offsets, None, _READ),
    Option("startingTimestamp", bounds.timestamp, None, _READ),
    Option("startingOffsetsByTimestamp", bounds.timestamps, None, _READ),
    Option("startingOffsetsByTimestampStrategy", options.one_of("error", "latest"), "error", _READ),
    Option("endingOffsets", bounds.offsets, None, _BATCH),
    Option("endingTimestamp", bounds.timestamp, None, _BATCH),
    Option("endingOffsetsByTimestamp", bounds.timestamps, None, _BATCH),
    Option("maxOffsetsPerTrigger", options.whole(1, 1 << 40), None, _STREAM),
    Option("minOffsetsPerTrigger", options.whole(1, 1 << 40), None, _STREAM),
    Option("maxTriggerDelay", options.seconds(0.001, 1e6), 900.0, _STREAM),
    Option("uiWebUrl", query_page.address, None, _STREAM),
    Option("minPartitions", options.whole(1, 10_000), None, _READ),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, _READ),
    Option("failOnDataLoss", options.truth, True, _READ),
    Option("group", options.text, None, _STREAM),
    Option("groupIdPrefix", options.text, None, _STREAM),
    options.STOP_FILE,
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
    columns=lambda chosen: columns.chosen(chosen, _COLUMNS),
    make_reader=StreamBatchReader,
    make_stream_reader=StreamSourceStreamingReader,
    make_sink=StreamSink.of,
    make_writer=Writer,
    make_stream_writer=StreamingWriter,
    no_overwrite="mode('overwrite') would remove what others have appended, and nothing is removed "
    "from a stream: use mode('append')",
    no_complete="outputMode('complete') gives the whole result anew with each batch, and a stream "
    "keeps what it got: use outputMode('update'), whose newest record of a key counts, or "
    "outputMode('append') with a watermark",
)
