"""The keyword arguments of calls, typed so that a type checker finds misspelt ones.

Their meaning is documented at :meth:`shmq.Queue.put`, :class:`shmq.QueueOptions`,
:class:`shmq.StreamOptions`, ``Stream.producer`` and ``Stream.subscribe``. A function that passes
them on can take ``**properties: Unpack[PutKeywords]`` or ``**options: Unpack[QueueKeywords]``, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict

from shmq.api.options import Confirm, Durability, Expired, Level, Match, Overflow, TargetKind
from shmq.api.producer import Acks, Partitioner
from shmq.api.record import OnDamage
from shmq.api.stream import Compression
from shmq.api.stream_options import StreamDurability, StreamOverflow
from shmq.api.subscription import Policy


class PutKeywords(TypedDict, total=False):
    """The properties of ``Queue.put``, ``aput``, ``loan`` and a pipeline's ``put``."""

    # keywords of a put: made by tools/options.py
    priority: int | Level | None
    group: str | None
    headers: Mapping[str, Any] | None
    delay: float | dt.timedelta | None
    deliver_at: float | dt.datetime | None
    ttl: float | dt.timedelta | None
    dedupe_id: str | None
    codec: str | None
    reply_to: str | None
    correlation: str | None
    confirm: Confirm | None
    # end


class PutManyKeywords(TypedDict, total=False):
    """The properties of ``Queue.put_many``."""

    # keywords of many puts: made by tools/options.py
    priority: int | Level | None
    group: str | None
    headers: Mapping[str, Any] | None
    delay: float | dt.timedelta | None
    ttl: float | dt.timedelta | None
    codec: str | None
    confirm: Confirm | None
    # end


class PutPackedKeywords(TypedDict, total=False):
    """The properties of ``Queue.put_packed``."""

    # keywords of a packed put: made by tools/options.py
    priority: int | Level | None
    group: str | None
    headers: Mapping[str, Any] | None
    delay: float | dt.timedelta | None
    ttl: float | dt.timedelta | None
    dedupe_id: str | None
    confirm: Confirm | None
    # end


class QueueKeywords(TypedDict, total=False):
    """The options of ``create_queue`` and ``ensure_queue``: see :class:`shmq.QueueOptions`."""

    # keywords of a queue: made by tools/options.py
    capacity: int
    arena_bytes: int
    max_message_bytes: int
    visibility_timeout: float | dt.timedelta
    max_deliveries: int | None
    dead_letter: str | None
    error_bytes: int
    ttl: float | dt.timedelta | None
    dead_letter_ttl: float | dt.timedelta | None
    on_expired: Expired
    priorities: int
    retry_delay: float | dt.timedelta
    retry_delay_max: float | dt.timedelta
    dedupe_window: float | dt.timedelta
    overflow: Overflow
    durability: Durability
    snapshot_interval: float | dt.timedelta
    confirm: Confirm
    expires: float | dt.timedelta | None
    auto_delete: bool
    exclusive: bool
    # end


class StreamKeywords(TypedDict, total=False):
    """The options of ``create_stream`` besides ``partitions``: see :class:`shmq.StreamOptions`."""

    # keywords of a stream: made by tools/options.py
    ring_bytes: int
    retention_bytes: int | None
    retention_seconds: float | dt.timedelta | None
    durability: StreamDurability
    overflow: StreamOverflow
    max_record_bytes: int
    confirm: Confirm
    segment_bytes: int
    mirror: str | None
    # end


class EnsureStreamKeywords(StreamKeywords, total=False):
    """The options of ``ensure_stream``."""

    partitions: int


class ProducerKeywords(TypedDict, total=False):
    """The options of ``Stream.producer``."""

    partitioner: Partitioner | None
    batch_bytes: int
    linger: float
    acks: Acks
    idempotent: bool
    codec: str | None
    compression: Compression | None


class ReaderKeywords(TypedDict, total=False):
    """The options of ``Stream.reader`` and ``areader`` besides the start and the partitions."""

    limit: int
    timeout: float | None
    lapped: Literal["raise", "skip"]
    where: str | None
    on_damage: OnDamage


class RecordLoanKeywords(TypedDict, total=False):
    """The options of ``Stream.loan``: those of ``Stream.append``."""

    key: bytes | str | None
    headers: Mapping[str, Any] | None
    timestamp: float | None
    partition: int | None
    block: bool | None
    timeout: float | None
    confirm: Confirm | None


class SubscribeOptions(TypedDict, total=False):
    """The options of ``Stream.subscribe`` besides the pattern and the history."""

    policy: Policy
    timeout: float | None
    limit: int
    on_lost: Callable[[int], object] | None
    on_damage: OnDamage


class SubscribeKeywords(SubscribeOptions, total=False):
    """The options of ``Stream.subscribe`` and ``asubscribe`` besides the pattern."""

    history: int | None


class IncrementKeywords(TypedDict, total=False):
    """The options of ``Table.increment`` and ``aincrement`` besides the number to add."""

    ttl: float | None
    least: int | None
    most: int | None
    sum_with: Iterable[str]
    create: bool
    renew: bool


class BindKeywords(TypedDict, total=False):
    """The options of ``Exchange.bind`` and ``Exchange.unbind`` besides the target and the key."""

    kind: TargetKind
    headers: Mapping[str, Any] | None
    match: Match
