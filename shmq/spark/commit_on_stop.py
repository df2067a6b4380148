"""Acknowledges, or commits to the group, the last batch of a query that has ended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from shmq.errors import ShmqError
from shmq.spark.queue.kind import QUEUE
from shmq.spark.queue.leases import Leases
from shmq.spark.queue.offset import Offset
from shmq.spark.shared.options import STREAM
from shmq.spark.stream.cursor import Cursor
from shmq.spark.stream.kind import STREAM_KIND
from shmq.spark.stream.offset import StreamOffset


def settle(given: Mapping[str, str], offset: str) -> int:
    """Acknowledge the last batch of a query that has ended; returns how many messages it settled.

    Spark tells a source that a batch is committed only when the next batch begins. So the last
    batch of a query is acknowledged by the next start of the query, or by this function, at
    once. ``given`` has the options of the stream. ``offset`` is the JSON of this source from
    the checkpoint's ``offsets``, for the newest batch in ``commits``. Messages that another
    consumer has leased since then stay with it. Those of a later batch, which was started and not
    committed, return to the queue: call it only if the query will not start again, or if there
    is not such batch. For streams the function commits the offset
    to the group, if the options name one, and returns 0. Raises :class:`~shmq.ShmqError`.
    """
    try:
        found = json.loads(offset)
    except ValueError as error:
        raise ShmqError(f"{offset[:200]!r} is not an offset of the checkpoint: {error}") from None
    if isinstance(found, dict) and "streams" in found:
        _commit_to_group(given, StreamOffset.of_json(found))
        return 0
    return _ack(given, Offset.of_json(found))


def _commit_to_group(given: Mapping[str, str], done: StreamOffset) -> None:
    chosen = STREAM_KIND.parse(given, STREAM)
    if chosen["group"] is None and done.group is None:
        return
    with contextlib.closing(Cursor(*STREAM_KIND.source(chosen), chosen)) as cursor:
        cursor.done(done)


def _ack(given: Mapping[str, str], done: Offset) -> int:
    chosen = QUEUE.parse(given, STREAM)
    chosen["failOnDataLoss"] = False
    with contextlib.closing(Leases(*QUEUE.source(chosen), chosen)) as leases:
        return leases.settle(done)
