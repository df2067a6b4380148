"""shmq: message queues between the processes of one host, in shared memory.

>>> import shmq
>>> broker = shmq.connect()
>>> orders = broker.ensure_queue("orders")
>>> orders.put({"id": 1}).sequence > 0
True
>>> with orders.get() as message:
...     message.body
{'id': 1}

``help(shmq.Queue)`` and the like tell what each name is:

Begin           connect, Broker, Queue, QueueOptions, Message, Put, LOW, NORMAL, HIGH
Consume         Bodies, AsyncBodies, Consumer, AsyncConsumer, Batch, Packed, DeadLetter, Failure,
                wait, ReadyEvent, worker, run, Worker, Retry, Reject
Put             Loan, Pipeline, Transaction
Look            QueueStats, QueueSummary, Attachment, Lease
In bulk         BulkQueue, Columns, Run, Claim, Takeover, StagedPublisher, Rows
Streams         Stream, StreamOptions, StreamSummary, Record, Records, RecordLoan, Appended,
                AppendedRange, Reader, AsyncReader, Subscription, AsyncSubscription, Producer,
                PartitionOffsets, PartitionRate
Groups          Group, Member, MemberInfo, GroupPartition, GroupSummary, Share, SharedRecord
Exchanges       Exchange, Binding, Published, ExchangeSummary, ExchangeStats
Names           escape_name, unescape_name
Bodies          encode_common
Tables          Table
Locks           Lock, Semaphore, LockHolder, LockSummary
Schemas         SchemaVersion, TypedQueue, TypedStream
Errors          ShmqError, of which all others are: see ``shmq.errors``
"""

from shmq.client.connect import connect as connect
from shmq.errors import *  # noqa: F403
from shmq.errors import __all__ as _errors
from shmq.lazy_imports import on_demand
from shmq.version import VERSION

TYPE_CHECKING = False  # that of typing, whose import would cost as much as the interpreter's start
if TYPE_CHECKING:
    from shmq.api import *  # noqa: F403
    from shmq.api.message import Reject as Reject
    from shmq.api.message import Retry as Retry
    from shmq.api.names import escape_name as escape_name
    from shmq.api.names import unescape_name as unescape_name
    from shmq.api.options import HIGH as HIGH
    from shmq.api.options import LOW as LOW
    from shmq.api.options import NORMAL as NORMAL
    from shmq.api.options import QueueOptions as QueueOptions
    from shmq.api.stream_options import StreamOptions as StreamOptions
    from shmq.client.shared.ready_event import ReadyEvent as ReadyEvent
    from shmq.client.wait import wait as wait
    from shmq.model.codec.common_types import encode_common as encode_common
    from shmq.workers.decorator import Worker as Worker
    from shmq.workers.decorator import run as run
    from shmq.workers.decorator import worker as worker

__version__ = VERSION

#: Where each public name is loaded from when it is asked for.
_PLACES = {
    name: module
    for module, names in {
        "shmq.errors": _errors,
        "shmq.client.connect": ["connect"],
        "shmq.client.wait": ["wait"],
        "shmq.client.shared.ready_event": ["ReadyEvent"],
        "shmq.model.codec.common_types": ["encode_common"],
        "shmq.workers.decorator": ["Worker", "run", "worker"],
        "shmq.api.message": ["Reject", "Retry"],
        "shmq.api.names": ["escape_name", "unescape_name"],
        "shmq.api.options": ["HIGH", "LOW", "NORMAL", "QueueOptions"],
        "shmq.api.stream_options": ["StreamOptions"],
        "shmq.api": [
            "Appended",
            "AppendedRange",
            "AsyncBodies",
            "AsyncConsumer",
            "AsyncReader",
            "AsyncSubscription",
            "Attachment",
            "Batch",
            "Binding",
            "Bodies",
            "Broker",
            "BulkQueue",
            "Claim",
            "Columns",
            "Consumer",
            "DeadLetter",
            "Failure",
            "Exchange",
            "ExchangeStats",
            "ExchangeSummary",
            "Group",
            "GroupPartition",
            "GroupSummary",
            "Lease",
            "Loan",
            "Lock",
            "LockHolder",
            "LockSummary",
            "Member",
            "MemberInfo",
            "Message",
            "Packed",
            "PartitionOffsets",
            "PartitionRate",
            "Pipeline",
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
            "Rows",
            "Run",
            "SchemaVersion",
            "Semaphore",
            "Share",
            "SharedRecord",
            "StagedPublisher",
            "Stream",
            "StreamSummary",
            "Subscription",
            "Table",
            "Takeover",
            "Transaction",
            "TypedQueue",
            "TypedStream",
        ],
    }.items()
    for name in names
}

# The public names are those of ``dir(shmq)``. With an ``__all__``, help(shmq) would print each of
# the classes in full, on 7,800 lines. The names used above are deleted: ``import *`` must not bring
# them.
if not TYPE_CHECKING:
    __getattr__, __dir__ = on_demand(__name__, _PLACES)
    del TYPE_CHECKING, VERSION, on_demand
