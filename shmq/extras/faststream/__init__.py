"""A broker of FastStream over shmq's queues: the extra ``shmq[faststream]``.

>>> from faststream import FastStream
>>> from shmq.extras.faststream import ShmqBroker
>>> broker = ShmqBroker()
>>> app = FastStream(broker)
>>> @broker.subscriber("orders")
... async def pack(total: int) -> None:
...     print("packed", total)
"""

from faststream import TestApp

from shmq.extras.faststream.broker import ShmqBroker
from shmq.extras.faststream.command import ShmqPublishCommand, ShmqResponse
from shmq.extras.faststream.config import ShmqQueue
from shmq.extras.faststream.memory_broker import TestShmqBroker
from shmq.extras.faststream.message import ShmqBatchMessage, ShmqMessage
from shmq.extras.faststream.publisher import ShmqPublisher
from shmq.extras.faststream.registrator import ShmqRoute, ShmqRoutePublisher, ShmqRouter
from shmq.extras.faststream.subscriber import ShmqSubscriber

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
