"""A shop: orders are packed, and one can ask for a price.

Run it with ``python -m examples.faststream.app``, and order something from another shell:

    shmq produce -q shop.orders --codec json -m '{"item": "tea", "count": 2}'
    shmq request -q shop.prices --codec json -m '"tea"'
    shmq consume -q shop.parcels
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, PositiveInt

from faststream import FastStream
from shmq.extras.faststream import ShmqBroker, ShmqRouter

PRICES = {"tea": 4, "jam": 6}

router = ShmqRouter(prefix="shop.")
broker = ShmqBroker(routers=[router])
app = FastStream(broker)


class Order(BaseModel):
    """What a customer wants."""

    item: str
    count: PositiveInt = 1


class Parcel(BaseModel):
    """What the customer gets."""

    item: str
    count: int
    price: int


@router.subscriber("orders", max_workers=4)
@router.publisher("parcels")
async def pack(order: Order) -> Parcel:
    """Pack an order; one for an unknown item becomes a dead letter."""
    return Parcel(item=order.item, count=order.count, price=PRICES[order.item] * order.count)


@router.subscriber("prices")
async def price(item: str) -> int | None:
    """Tell the price of an item."""
    return PRICES.get(item)


if __name__ == "__main__":
    asyncio.run(app.run())
