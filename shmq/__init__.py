"""shmq: message queues between the processes of one host, in shared memory.

>>> import shmq
>>> broker = shmq.connect()
>>> orders = broker.ensure_queue("orders")
>>> orders.put({"id": 1}).sequence > 0
True
>>> with orders.get() as message:
...     message.body
{'id': 1}
"""

from shmq.client.connecting import connect
from shmq.client.wait import wait
from shmq.contract import (
    AsyncConsumer,
    Attachment,
    Batch,
    Broker,
    Columns,
    Consumer,
    DeadLetter,
    Loan,
    Message,
    Packed,
    Pipeline,
    Put,
    Queue,
    QueueStats,
    QueueSummary,
    Run,
)
from shmq.errors import (
    ConnectionLost,
    DamagedFile,
    DamagedSegment,
    Empty,
    FileError,
    Forbidden,
    ForeignSegment,
    Full,
    IncompatibleFile,
    IncompatibleSegment,
    InvalidName,
    InvalidOption,
    LeaseExpired,
    MessageTooLarge,
    NoSpace,
    NoSuchQueue,
    NotConfirmed,
    PutsRefused,
    QueueDeleted,
    QueueExists,
    SegmentError,
    ServerError,
    ShmqError,
    ShuttingDown,
    Unauthorized,
    Unsupported,
)
from shmq.options import HIGH, LOW, NORMAL, QueueOptions
from shmq.version import VERSION
from shmq.workers.declaration import Worker, run, worker
from shmq.workers.outcome import Reject, Retry

__version__ = VERSION

__all__ = [
    "HIGH",
    "LOW",
    "NORMAL",
    "AsyncConsumer",
    "Attachment",
    "Batch",
    "Broker",
    "Columns",
    "ConnectionLost",
    "Consumer",
    "DamagedFile",
    "DamagedSegment",
    "DeadLetter",
    "Empty",
    "FileError",
    "Forbidden",
    "ForeignSegment",
    "Full",
    "IncompatibleFile",
    "IncompatibleSegment",
    "InvalidName",
    "InvalidOption",
    "LeaseExpired",
    "Loan",
    "Message",
    "MessageTooLarge",
    "NoSpace",
    "NoSuchQueue",
    "NotConfirmed",
    "Packed",
    "Pipeline",
    "Put",
    "PutsRefused",
    "Queue",
    "QueueDeleted",
    "QueueExists",
    "QueueOptions",
    "QueueStats",
    "QueueSummary",
    "Reject",
    "Retry",
    "Run",
    "SegmentError",
    "ServerError",
    "ShmqError",
    "ShuttingDown",
    "Unauthorized",
    "Unsupported",
    "Worker",
    "connect",
    "run",
    "wait",
    "worker",
]
