"""What a broker, a queue and a message are, whatever carries them.

Each transport implements these abstract classes, and the same conformance tests
run over each.

What a process does not ask for is not loaded: one with a queue needs few of them.
"""

from typing import TYPE_CHECKING, Final

from shmq.on_demand import on_demand

if TYPE_CHECKING:
    from shmq.contract.batch import Batch, Packed
    from shmq.contract.broker import Broker
    from shmq.contract.columns import Columns, Run
    from shmq.contract.exchange import (
        Binding,
        Exchange,
        ExchangeKind,
        ExchangeSummary,
        Match,
        Published,
        TargetKind,
    )
    from shmq.contract.group import (
        Assignment,
        Group,
        GroupPartition,
        GroupStart,
        GroupSummary,
        Member,
        MemberInfo,
        OnPartitions,
    )
    from shmq.contract.message import Body, DeadLetter, Message, Put, Row, Rows
    from shmq.contract.pipeline import Pipeline
    from shmq.contract.producer import Acks, Partitioner, Producer
    from shmq.contract.queue import AsyncConsumer, Consumer, Loan, Queue
    from shmq.contract.record import Appended, AppendedRange, OnDamage, Record, Records
    from shmq.contract.schema import SchemaVersion, TypedQueue, TypedStream
    from shmq.contract.share import Share, SharedRecord
    from shmq.contract.stats import Attachment, QueueStats, QueueSummary
    from shmq.contract.stream import (
        AsyncReader,
        Compression,
        PartitionOffsets,
        PartitionRate,
        Reader,
        Start,
        Stream,
        StreamSummary,
    )
    from shmq.contract.subscription import Policy, Subscription
    from shmq.contract.transaction import Transaction

__all__ = [
    "Acks",
    "Appended",
    "AppendedRange",
    "Assignment",
    "AsyncConsumer",
    "AsyncReader",
    "Attachment",
    "Batch",
    "Binding",
    "Body",
    "Broker",
    "Columns",
    "Compression",
    "Consumer",
    "DeadLetter",
    "Exchange",
    "ExchangeKind",
    "ExchangeSummary",
    "Group",
    "GroupPartition",
    "GroupStart",
    "GroupSummary",
    "Loan",
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
    "Records",
    "Row",
    "Rows",
    "Run",
    "SchemaVersion",
    "Share",
    "SharedRecord",
    "Start",
    "Stream",
    "StreamSummary",
    "Subscription",
    "TargetKind",
    "Transaction",
    "TypedQueue",
    "TypedStream",
]

#: What each module has.
_MODULES: Final = {
    "batch": ("Batch", "Packed"),
    "broker": ("Broker",),
    "columns": ("Columns", "Run"),
    "exchange": (
        "Binding",
        "Exchange",
        "ExchangeKind",
        "ExchangeSummary",
        "Match",
        "Published",
        "TargetKind",
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
    "message": ("Body", "DeadLetter", "Message", "Put", "Row", "Rows"),
    "pipeline": ("Pipeline",),
    "producer": ("Acks", "Partitioner", "Producer"),
    "queue": ("AsyncConsumer", "Consumer", "Loan", "Queue"),
    "record": ("Appended", "AppendedRange", "OnDamage", "Record", "Records"),
    "schema": ("SchemaVersion", "TypedQueue", "TypedStream"),
    "share": ("Share", "SharedRecord"),
    "stats": ("Attachment", "QueueStats", "QueueSummary"),
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
    "subscription": ("Policy", "Subscription"),
    "transaction": ("Transaction",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = on_demand(
        __name__,
        {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names},
    )
