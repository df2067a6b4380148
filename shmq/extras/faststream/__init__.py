"""A broker of FastStream over shmq's queues: the extra ``shmq[faststream]``.

>>> from faststream import FastStream
>>> from shmq.integrations.faststream import ShmqBroker
>>> broker = ShmqBroker()
>>> app = FastStream(broker)
>>> @broker.subscriber("orders")
... async def pack(total: int) -> None:
...     print("packed", total)
"""

from faststream import TestApp

from shmq.integrations.faststream.broker import ShmqBroker
from shmq.integrations.faststream.command import ShmqPublishCommand, ShmqResponse
from shmq.integrations.faststream.memory_broker import TestShmqBroker
from shmq.integrations.faststream.message import ShmqBatchMessage, ShmqMessage
from shmq.integrations.faststream.publisher import ShmqPublisher
from shmq.integrations.faststream.queue import ShmqQueue
from shmq.integrations.faststream.router import ShmqRoute, ShmqRoutePublisher, ShmqRouter
from shmq.integrations.faststream.subscriber import ShmqSubscriber

__all__ = [
    "ShmqBatchMessage",
    "ShmqBroker",
    "ShmqMessage",
    "ShmqPublishCommand",
    "ShmqPublisher",
    "ShmqQueue",
    "ShmqResponse",
    "ShmqRoute",
    "ShmqRoutePublisher",
    "ShmqRouter",
    "ShmqSubscriber",
    "TestApp",
    "TestShmqBroker",
]
