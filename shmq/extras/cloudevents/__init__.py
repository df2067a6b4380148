"""CloudEvents 1.0 in queues and streams.

>>> import shmq
>>> from shmq.extras.cloudevents import event_of, put_event
>>> orders = shmq.connect().ensure_queue("orders")
>>> event = {"id": "17", "source": "/shop", "type": "order.made", "data": {"total": 12}}
>>> put_event(orders, event).sequence > 0
True
>>> with orders.get() as message:
...     event_of(message).data
{'total': 12}
"""

from shmq.extras.cloudevents.event import CloudEvent
from shmq.extras.cloudevents.message import (
    EncodedEvent,
    Mode,
    append_event,
    aput_event,
    encode_event,
    event_of,
    put_event,
)

__all__ = [
    "CloudEvent",
    "EncodedEvent",
    "Mode",
    "append_event",
    "aput_event",
    "encode_event",
    "event_of",
    "put_event",
]
