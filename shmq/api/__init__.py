"""The contracts of brokers, queues, streams and messages, independent of the transport.

Each transport implements these abstract classes, and the same conformance tests run against each of
them.

Names are imported on first use: a process that only uses a queue loads few of the modules.
"""

from typing import TYPE_CHECKING, Final

from shmq.lazy_imports import on_demand

if TYPE_CHECKING:
    from shmq.api.batch import Batch, Packed
    from shmq.api.broker import Broker
    from shmq.api.bulk import BulkQueue, StagedPublisher
    from shmq.api.columns import Claim, Columns, Run, Takeover
    from shmq.api.exchange import (
        Binding,
        Exchange,
        ExchangeKind,
        ExchangeStats,
        ExchangeSummary,
        Published,
    )
    from shmq.api.group import (
        Assignment,
        Group,
        GroupPartition,
        GroupStart,
        GroupSummary,
        Member,
        MemberInfo,
        OnPartitions,
    )
    from shmq.api.lock import Lock, LockHolder, LockSummary, Semaphore
    from shmq.api.message import Body, DeadLetter, Failure, Message, Put, Row, Rows
    from shmq.api.options import Match, TargetKind
    from shmq.api.producer import Acks, Partitioner, Producer
    from shmq.api.queue import AsyncBodies, AsyncConsumer, Bodies, Consumer, Loan, Pipeline, Queue
    from shmq.api.record import Appended, AppendedRange, OnDamage, Record, RecordLoan, Records
    from shmq.api.schema import SchemaVersion, TypedQueue, TypedStream
    from shmq.api.share import Share, SharedRecord
    from shmq.api.stats import Attachment, Lease, QueueStats, QueueSummary
    from shmq.api.stream import (
        AsyncReader,
        Compression,
        PartitionOffsets,
        PartitionRate,
        Reader,
        Start,
        Stream,
        StreamSummary,
    )
    from shmq.api.subscription import AsyncSubscription, Policy, Subscription
    from shmq.api.table import Table
    from shmq.api.transaction import Transaction

__all__ = [
    "Acks",
    "Appended",
    "AppendedRange",
    "Assignment",
    "AsyncBodies",
    "AsyncConsumer",
    "AsyncReader",
    "AsyncSubscription",
    "Attachment",
    "Batch",
    "Binding",
    "Bodies",
    "Body",
    "Broker",
    "BulkQueue",
    "Claim",
    "Columns",
    "Compression",
    "Consumer",
    "DeadLetter",
    "Exchange",
    "ExchangeKind",
    "ExchangeStats",
    "ExchangeSummary",
    "Failure",
    "Group",
    "GroupPartition",
    "GroupStart",
    "GroupSummary",
    "Lease",
    "Loan",
    "Lock",
    "LockHolder",
    "LockSummary",
    "Match",
    "Member",
    "MemberInfo",
    "Message",
    "OnDamage",
    "OnPartitions",
    "Packed",
    "PartitionOffsets",
    "PartitionRate",
    "Partitioner",
    "Pipeline",
    "Policy",
    "Producer",
    "Published",
    "Put",
    "Queue",
    "QueueStats",
    "QueueSummary",
    "Reader",
    "Record",
    "RecordLoan",
    "Records",
    "Row",
    "Rows",
    "Run",
    "SchemaVersion",
    "Semaphore",
    "Share",
    "SharedRecord",
    "StagedPublisher",
    "Start",
    "Stream",
    "StreamSummary",
    "Subscription",
    "Table",
    "Takeover",
    "TargetKind",
    "Transaction",
    "TypedQueue",
    "TypedStream",
]

#: The names that each module exports.
_MODULES: Final = {
    "batch": ("Batch", "Packed"),
    "broker": ("Broker",),
    "bulk": ("BulkQueue", "StagedPublisher"),
    "columns": ("Claim", "Columns", "Run", "Takeover"),
    "exchange": (
        "Binding",
        "Exchange",
        "ExchangeKind",
        "ExchangeStats",
        "ExchangeSummary",
        "Published",
    ),
    "group": (
        "Assignment",
        "Group",
        "GroupPartition",
        "GroupStart",
        "GroupSummary",
        "Member",
        "MemberInfo",
        "OnPartitions",
    ),
    "message": ("Body", "DeadLetter", "Failure", "Message", "Put", "Row", "Rows"),
    "options": ("Match", "TargetKind"),
    "producer": ("Acks", "Partitioner", "Producer"),
    "queue": ("AsyncBodies", "AsyncConsumer", "Bodies", "Consumer", "Loan", "Pipeline", "Queue"),
    "record": ("Appended", "AppendedRange", "OnDamage", "Record", "RecordLoan", "Records"),
    "schema": ("SchemaVersion", "TypedQueue", "TypedStream"),
    "share": ("Share", "SharedRecord"),
    "lock": ("Lock", "LockHolder", "LockSummary", "Semaphore"),
    "stats": ("Attachment", "Lease", "QueueStats", "QueueSummary"),
    "stream": (
        "AsyncReader",
        "Compression",
        "PartitionOffsets",
        "PartitionRate",
        "Reader",
        "Start",
        "Stream",
        "StreamSummary",
    ),
    "subscription": ("AsyncSubscription", "Policy", "Subscription"),
    "table": ("Table",),
    "transaction": ("Transaction",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = on_demand(
        __name__,
        {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names},
    )
