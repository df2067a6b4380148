"""Acknowledges, or commits to the group, the last batch of a query that has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping

from shmq.errors import ShmqError
from shmq.spark.queue.kind import OPTIONS, REFUSED
from shmq.spark.queue.leases import Leases
from shmq.spark.queue.offset import Offset
from shmq.spark.queue.source import Subscription
from shmq.spark.shared import options
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import STREAM
from shmq.spark.stream import kind as stream_kind
from shmq.spark.stream.cursor import Cursor
from shmq.spark.stream.offset import StreamOffset
from shmq.spark.stream.topics import Topics

__all__ = ["settle"]


def settle(given: Mapping[str, str], offset: str) -> int:
    """Acknowledge the last batch of a query that has ended; returns how many messages it settled.

    Spark tells a source that a batch is committed only when the next batch begins. So the last
    batch of a query is acknowledged by the next start of the query, or by this function, at
    once. ``given`` has the options of the stream. ``offset`` is the JSON of this source from
    the checkpoint's ``offsets``, for the newest batch in ``commits``. Messages that another
    consumer has leased since then stay with it. For streams the function commits the offset
    to the group, if the options name one, and returns 0. Raises :class:`~shmq.ShmqError`.
    """
    try:
        found = json.loads(offset)
    except ValueError as error:
        raise ShmqError(f"{offset[:200]!r} is no offset of the checkpoint: {error}") from None
    if isinstance(found, dict) and "streams" in found:
        _tell(given, StreamOffset.of_json(found))
        return 0
    return _acknowledge(given, Offset.of_json(found))


def _tell(given: Mapping[str, str], done: StreamOffset) -> None:
    kind = stream_kind
    chosen = options.parse(kind.OPTIONS, given, STREAM, form="shmq", refused=kind.REFUSED)
    if chosen["group"] is None:
        return
    cursor = Cursor(Address.of(chosen), Topics.of(chosen), chosen)
    try:
        cursor.done(done)
    finally:
        cursor.close()


def _acknowledge(given: Mapping[str, str], done: Offset) -> int:
    chosen = options.parse(OPTIONS, given, STREAM, form="shmq", refused=REFUSED)
    leases = Leases(
        Address.of(chosen), Subscription.of(chosen), chosen["leaseTimeout"], strict=False
    )
    try:
        return leases.settle(done)
    finally:
        leases.close()
