"""A kitchen: orders are tasks of Celery, and a report adds up what they took."""

from __future__ import annotations

import time

from celery import Celery, chord

app = Celery("orders", broker="shmq://", backend="shmq://")
app.conf.broker_connection_retry_on_startup = True
app.conf.task_acks_late = True
app.conf.beat_schedule = {"report": {"task": "orders.report", "schedule": 2.0}}


#: How long each dish takes, in seconds.
SECONDS = {"soup": 0.08, "bread": 0.05, "tea": 0.02}


@app.task
def prepare(dish: str) -> float:
    """Prepare a dish; what it took."""
    time.sleep(SECONDS[dish])
    return SECONDS[dish]


@app.task
def total(seconds: list[float]) -> str:
    """What many dishes took."""
    return f"{len(seconds)} dishes in {sum(seconds):.2f} s"


@app.task
def report() -> str:
    """Prepare each dish, and add up: a chord. Returns the id of the sum's task."""
    return str(chord(prepare.s(dish) for dish in SECONDS)(total.s()).id)
