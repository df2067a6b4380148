"""Acknowledges what a query has committed that has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping

from shmq.errors import ShmqError
from shmq.spark import options
from shmq.spark.address import Address
from shmq.spark.options import STREAM
from shmq.spark.queue_kind import OPTIONS, REFUSED
from shmq.spark.queue_leases import Leases
from shmq.spark.queue_source import Subscription
from shmq.spark.taken import Offset

__all__ = ["settle"]


def settle(given: Mapping[str, str], offset: str) -> int:
    """Acknowledge a batch of a query that has ended; returns how many messages that settled.

    Spark tells a source that a batch is committed when it begins the next one, so the last
    batch of a query is acknowledged by whoever starts it again: by the next start, or by this,
    at once. ``given`` are the options of the stream, and ``offset`` is the JSON of this source
    in the newest file of the checkpoint's ``commits``, as ``offsets`` has it. What another
    consumer has taken in the meantime stays its own. Raises :class:`~shmq.ShmqError`.
    """
    chosen = options.parse(OPTIONS, given, STREAM, form="shmq", refused=REFUSED)
    try:
        done = Offset.of_json(json.loads(offset))
    except ValueError as error:
        raise ShmqError(f"{offset[:200]!r} is no offset of the checkpoint: {error}") from None
    leases = Leases(
        Address.of(chosen), Subscription.of(chosen), chosen["leaseTimeout"], strict=False
    )
    try:
        return leases.settle(done)
    finally:
        leases.close()
