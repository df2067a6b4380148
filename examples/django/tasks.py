"""The tasks of the shop."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("django.tasks") is not None:
    from django.tasks import task
else:  # before Django 6
    from django_tasks import task

PRICES = {"tea": 4, "jam": 6}


@task
def pack(item: str, count: int) -> dict[str, object]:
    """Pack an order, and have the customer told."""
    price = PRICES[item] * count
    tell.enqueue(f"{count} x {item} for {price}")
    return {"item": item, "count": count, "price": price}


@task(queue_name="mails", priority=10)
async def tell(text: str) -> str:
    """Tell the customer; here, nobody is told."""
    return text
