"""A stream behind ``format("shmq")``: its options, and what makes its readers and writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from shmq.spark.shared import address, options
from shmq.spark.shared.kind import Kind
from shmq.spark.shared.options import BATCH, KIND, STREAM, Option
from shmq.spark.shared.subscription import assigned
from shmq.spark.stream import bounds, writer
from shmq.spark.stream.reader import StreamBatchReader, StreamSourceStreamingReader
from shmq.spark.stream.writer import StreamSink

__all__ = ["STREAM_KIND"]

_READ: Final = frozenset({BATCH, STREAM})
_BATCH: Final = frozenset({BATCH})
_STREAM: Final = frozenset({STREAM})

#: The columns of a stream's rows that are there by default.
_KAFKAS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_COLUMNS: Final = (*_KAFKAS, "headers", "codec")

_OPTIONS: Final = (
    *address.OPTIONS,
    KIND,
    Option("subscribe", options.names, None, _READ),
    Option("subscribePattern", options.pattern, None, _READ),
    Option("assign", assigned, None, _READ),
    Option("columns", options.several_of(*_COLUMNS), None, _READ),
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
    Option("minPartitions", options.whole(1, 10_000), None, _READ),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, _READ),
    Option("failOnDataLoss", options.truth, True, _READ),
    Option("group", options.text, None, _STREAM),
    options.STOP_FILE,
    *writer.OPTIONS,
)

_TAKES_NOTHING: Final = (
    "it is of queues, and a read takes nothing from a stream: leave it out, or name a queue"
)

_REFUSED: Final = MappingProxyType(
    {
        **dict.fromkeys(("states", "leasetimeout", "maxbytespertrigger"), _TAKES_NOTHING),
        **dict.fromkeys(
            ("staged", "stagingbytes"),
            "a stream takes what each task has at once, and once: leave it out",
        ),
        "path": "name the stream as .option('subscribe', NAME), and to write as "
        ".option('topic', NAME)",
        "kafka.bootstrap.servers": "say where the streams are as .option('url', …)",
        "kafka.group.id": "say it as .option('group', NAME)",
        "groupidprefix": "a query reads without a group; to tell one how far it is, "
        "say .option('group', NAME)",
        "namespace": "say it as .option('url', NAMESPACE)",
        "maxrecordsperpartition": "say .option('minPartitions', NUMBER)",
    }
)


def _columns(chosen: Mapping[str, Any]) -> Sequence[str]:
    if chosen["columns"] is not None:
        named: Sequence[str] = chosen["columns"]
        return named
    return (*_KAFKAS, "headers") if chosen["includeHeaders"] else _KAFKAS


#: The kind of streams.
STREAM_KIND: Final = Kind(
    name="stream",
    options=_OPTIONS,
    refused=_REFUSED,
    columns=_columns,
    make_reader=StreamBatchReader,
    make_stream_reader=StreamSourceStreamingReader,
    make_sink=StreamSink.of,
    make_writer=writer.StreamWriter,
    make_stream_writer=writer.StreamSinkStreamingWriter,
    no_overwrite="mode('overwrite') would remove what others have appended, and nothing is removed "
    "from a stream: use mode('append')",
    no_complete="outputMode('complete') gives the whole result anew with each batch, and a stream "
    "keeps what it got: use outputMode('update'), whose newest record of a key counts, or "
    "outputMode('append') with a watermark",
)
