"""The application of Celery, which ``celery -A examples.site`` finds: it makes the invoices."""

import os

from celery import Celery

from examples.site.ledger import PRICES, add_to_ledger

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.site.settings")

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")


@app.task
def invoice(item: str, count: int) -> int:
    """Add an order to the turnover; what it costs."""
    price = PRICES[item] * count
    add_to_ledger("turnover", price)
    return price
