"""Places some orders, and prints what becomes of them."""

from __future__ import annotations

from celery import group
from orders import SECONDS, app, prepare, report  # type: ignore[import-not-found]

TIMEOUT = 60

print("one dish took", prepare.delay("soup").get(timeout=TIMEOUT), "s")
print("later:", prepare.apply_async(("tea",), countdown=1).get(timeout=TIMEOUT), "s")
print("many:", group(prepare.s(dish) for dish in SECONDS)().get(timeout=TIMEOUT))
print("the day:", app.AsyncResult(report.delay().get(timeout=TIMEOUT)).get(timeout=TIMEOUT))
