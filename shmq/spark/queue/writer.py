"""A write to queues: its options, its writers, and the put of rows that are not staged."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, cast

from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.api.options import MAX_STAGING_BYTES, STAGING_BYTES
from shmq.api.properties import PROPERTIES
from shmq.errors import Full, InvalidOption
from shmq.model.codec.codecs import CODECS, put_arguments, unpack_properties
from shmq.spark.queue import staging
from shmq.spark.queue.staging import Staged
from shmq.spark.shared import options, sink_rows
from shmq.spark.shared.columns import SinkColumns
from shmq.spark.shared.options import WRITE, Option
from shmq.spark.shared.sink import WAIT_FILE, BatchId, Sink, StreamingWriter, Writer
from shmq.spark.shared.wait_report import WaitReport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueSink(Sink):
    """A write to queues."""

    THING = "queue"
    MAKE = "shmq create -q"

    staged: bool
    staging_bytes: int

    @classmethod
    def of(cls, chosen: Mapping[str, Any], schema: StructType) -> Self:
        """The write that the options and columns define.

        Raises :class:`~shmq.InvalidOption`, and :class:`~shmq.InvalidName` for an invalid
        queue name.
        """
        topic = _choose_topic(chosen)
        if not chosen["staged"]:
            _check_unstaged(chosen)
        return cls(
            **Sink.fields(chosen, topic),
            columns=SinkColumns.of(schema, topic),
            staged=chosen["staged"],
            staging_bytes=chosen["stagingBytes"] or STAGING_BYTES,
        )

    def _open(self, broker: shmq.Broker, topic: str) -> shmq.Queue:
        return broker.queue(topic)

    def write(
        self, batch_id: Callable[[Sink], BatchId], batches: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Stage a task's rows, or put them."""
        if not self.staged:
            return put(self, batches)
        return staging.stage(self, batch_id(self), batches, self.staging_bytes)


def _choose_topic(chosen: Mapping[str, Any]) -> str | None:
    topic: str | None = chosen["topic"]
    queue: str | None = chosen["queue"]
    if topic is not None and queue is not None and topic != queue:
        raise InvalidOption(
            f"the options topic={topic!r} and queue={queue!r} mean the same: give one of them"
        )
    return topic or queue


def _check_unstaged(chosen: Mapping[str, Any]) -> None:
    for name in ("stagingBytes", "publisher", "batch"):
        if chosen[name] is not None:
            raise InvalidOption(
                f"the option {name}={chosen[name]} is for rows that are staged, and staged=false "
                f"puts them straight into the queue: leave one of them out"
            )


#: The options of a sink, in addition to those in :mod:`shmq.spark.shared.address`.
OPTIONS: Final = (
    Option("topic", options.text, None, WRITE),
    Option("queue", options.text, None, WRITE),
    Option("staged", options.truth, True, WRITE),
    Option("stagingBytes", options.size(1 << 20, MAX_STAGING_BYTES), None, WRITE),
    Option("publishTimeout", options.seconds(0, 1e9), None, WRITE),
    Option("publisher", options.text, None, WRITE),
    Option("batch", options.whole(0, (1 << 62)), None, WRITE),
    WAIT_FILE,
)

Messages = Sequence[WriterCommitMessage | None]


class QueueWriter(Writer):
    """Puts all rows of a DataFrame into queues, or none.

    No row is there before all tasks have ended. A publishing that is cut off leaves the first rows
    in the queue; if the options name the publisher and the batch, the rest stays staged, and the
    same write, run again, puts just that.
    """

    _sink: QueueSink

    def __init__(self, sink: QueueSink) -> None:
        super().__init__(sink)
        #: Whether the publisher's name is used for this write only.
        self._once = sink.publisher is None

    def commit(self, messages: Messages) -> None:
        """Publish what every task has staged."""
        if self._sink.staged:
            staging.publish(self._sink, cast(Sequence[Staged], messages), forget=self._once)

    def abort(self, messages: Messages) -> None:
        """Remove the staged rows, unless another write of the same publisher may use them."""
        if self._sink.staged and self._once:
            staged = cast(Sequence[Staged | None], messages)
            staging.discard(self._sink, self._sink.run, staged)


class QueueSinkStreamingWriter(StreamingWriter):
    """Puts the rows of each micro-batch into queues once, however often Spark runs it."""

    _sink: QueueSink

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Publish what every task has staged."""
        del batchId
        if self._sink.staged:
            staging.publish(self._sink, cast(Sequence[Staged], messages), forget=False)


#: The codecs that a put would apply, although these bodies are encoded already.
_MADE: Final = frozenset(CODECS) - {"bytes", "text"}

#: The properties that are unique to a message.
_ITS_OWN: Final = frozenset(row.name for row in PROPERTIES.values() if row.is_of_one)

#: The arguments of ``Queue.put`` for one body, by name.
Properties = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class UnstagedWrite(WriterCommitMessage):
    """A task's message to the driver: how many rows it has put."""

    rows: int


def put(sink: QueueSink, batches: Iterable[pa.RecordBatch]) -> UnstagedWrite:
    """Put a task's rows; waits for a full queue as long as the sink allows.

    If the task fails, its rows that were put stay, and a retry puts them again. Raises
    :class:`~shmq.Full`, and what ``Queue.put`` raises.
    """
    rows = 0
    report = WaitReport(sink.wait_file)
    with sink.address.connect() as broker:
        queues: dict[str, shmq.Queue] = {}
        for batch in batches:
            for name, part in sink_rows.by_queue(batch, sink.columns, sink.topic):
                if name not in queues:
                    queues[name] = broker.queue(name)
                _put_rows(queues[name], part, sink.timeout, report)
                rows += len(part)
    return UnstagedWrite(rows)


def _put_rows(
    queue: shmq.Queue, rows: shmq.Rows, timeout: float | None, report: WaitReport
) -> None:
    default = {} if rows.codec is None else {"codec": rows.codec}
    for meta, run in itertools.groupby(rows.pairs(), operator.itemgetter(1)):
        properties = default | put_arguments(unpack_properties(meta))
        bodies = [bytes(body) for body, _ in run]
        if properties.get("codec") not in _MADE and _ITS_OWN.isdisjoint(properties):
            _put_alike(queue, bodies, properties, timeout, report)
            continue
        for body in bodies:
            report.until_room(functools.partial(_put_one, queue, body, properties), timeout)


def _put_alike(
    queue: shmq.Queue,
    bodies: Sequence[bytes],
    properties: Properties,
    timeout: float | None,
    report: WaitReport,
) -> None:
    """Put bodies with the same properties, as many at a time as fit."""
    rest = [_as_put(body, properties) for body in bodies]

    def attempt(seconds: float | None) -> None:
        del rest[: queue.put_many(rest, True, seconds, **properties)]
        while rest:
            queue.put(rest[0], False, **properties)  # its Full says what is full
            del rest[0]
            del rest[: queue.put_many(rest, False, **properties)]

    try:
        report.until_room(attempt, timeout)
    except Full as error:
        raise Full(
            f"{error}; within publishTimeout={timeout:g} s it took {len(bodies) - len(rest):,} of "
            f"{len(bodies):,} rows, which stay in it"
        ) from None


def _put_one(queue: shmq.Queue, body: bytes, properties: Properties, seconds: float | None) -> None:
    """Put a body; an encoded one through a loan, which does not encode it again."""
    if properties.get("codec") not in _MADE:
        queue.put(_as_put(body, properties), True, seconds, **properties)
        return
    with queue.loan(len(body), block=True, timeout=seconds, **properties) as view:
        view[:] = body


def _as_put(body: bytes, properties: Properties) -> Any:
    return body.decode() if properties.get("codec") == "text" else body
