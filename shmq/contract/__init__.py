"""What a broker, a queue and a message are, whatever carries them.

Each transport implements these abstract classes, and the same conformance tests
run over each.
"""

from shmq.contract.batch import Batch, Packed
from shmq.contract.broker import Broker
from shmq.contract.columns import Columns, Run
from shmq.contract.message import Body, DeadLetter, Message, Put, Row
from shmq.contract.pipeline import Pipeline
from shmq.contract.queue import AsyncConsumer, Consumer, Loan, Queue
from shmq.contract.stats import Attachment, QueueStats, QueueSummary

__all__ = [
    "AsyncConsumer",
    "Attachment",
    "Batch",
    "Body",
    "Broker",
    "Columns",
    "Consumer",
    "DeadLetter",
    "Loan",
    "Message",
    "Packed",
    "Pipeline",
    "Put",
    "Queue",
    "QueueStats",
    "QueueSummary",
    "Row",
    "Run",
]
