"""Puts one task's rows directly into their queues, at least once."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.codec.codecs import CODECS
from shmq.errors import Full
from shmq.spark.shared import sink_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from shmq.spark.queue.sink import Sink
    from shmq.spark.shared.sink_rows import Properties, Rows

__all__ = ["UnstagedWrite", "put"]

#: The codecs that a put would apply, although these bodies are encoded already.
_MADE: Final = frozenset(CODECS) - {"bytes", "text"}

#: The properties that are unique to a message.
_ITS_OWN: Final = frozenset({"dedupe_id", "correlation", "reply_to"})


@dataclasses.dataclass(frozen=True)
class UnstagedWrite(WriterCommitMessage):
    """A task's message to the driver: how many rows it has put."""

    rows: int


def put(sink: Sink, batches: Iterable[pa.RecordBatch]) -> UnstagedWrite:
    """Put a task's rows; waits for a full queue as long as the sink allows.

    If the task fails, its rows that were put stay, and a retry puts them again. Raises
    :class:`~shmq.Full`, and what ``Queue.put`` raises.
    """
    rows = 0
    with sink.address.connect() as broker:
        queues: dict[str, shmq.Queue] = {}
        for batch in batches:
            for name, part in sink_rows.by_queue(batch, sink.columns, sink.topic):
                if name not in queues:
                    queues[name] = broker.queue(name)
                _put_rows(queues[name], part, sink.timeout)
                rows += len(part)
    return UnstagedWrite(rows)


def _put_rows(queue: shmq.Queue, rows: Rows, timeout: float | None) -> None:
    bodies = rows.bodies.to_pylist()
    if rows.properties is None:
        alike: Properties = {} if rows.codec is None else {"codec": rows.codec}
        _put_alike(queue, bodies, alike, timeout)
        return
    prepared_puts = zip(bodies, rows.properties, strict=True)
    for properties, run in itertools.groupby(prepared_puts, key=operator.itemgetter(1)):
        same = [body for body, _ in run]
        if properties.get("codec") in _MADE:
            for body in same:
                _put_encoded(queue, body, properties, timeout)
        elif _ITS_OWN.isdisjoint(properties):
            _put_alike(queue, same, properties, timeout)
        else:
            for body in same:
                queue.put(_as_put(body, properties), True, timeout, **properties)


def _put_alike(
    queue: shmq.Queue, bodies: Sequence[bytes], properties: Properties, timeout: float | None
) -> None:
    """Put bodies with the same properties, as many at a time as fit."""
    given = [_as_put(body, properties) for body in bodies]
    taken = queue.put_many(given, True, timeout, **properties)
    if taken < len(given):
        raise Full(
            f"queue {queue.name!r} had no room within publishTimeout={timeout:g} s: it took "
            f"{taken:,} of {len(given):,} rows, which stay in it"
        )


def _put_encoded(
    queue: shmq.Queue, body: bytes, properties: Properties, timeout: float | None
) -> None:
    """Put an encoded body through a loan, which does not encode it again."""
    with queue.loan(len(body), block=True, timeout=timeout, **properties) as view:
        view[:] = body


def _as_put(body: bytes, properties: Properties) -> Any:
    return body.decode() if properties.get("codec") == "text" else body
