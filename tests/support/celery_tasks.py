"""An application of Celery for the tests: ``celery -A tests.support.celery_tasks``.

It imports nothing of shmq: the URLs in the environment are all that it knows of it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject

app = Celery("tests.support.celery_tasks", broker=os.environ["TEST_BROKER"])
app.conf.result_backend = os.environ.get("TEST_BACKEND")
app.conf.update(json.loads(os.environ.get("TEST_CELERY", "{}")))
app.conf.broker_connection_retry_on_startup = True


@app.task(acks_late=True, reject_on_worker_lost=True, ignore_result=True)
def record(number: int, path: str, seconds: float = 0.0) -> None:
    """Append the number to a file: one write, so that processes do not mix theirs."""
    if seconds:
        time.sleep(seconds)
    with Path(path).open("ab", buffering=0) as file:
        file.write(b"%d\n" % number)


@app.task(acks_late=True, reject_on_worker_lost=True, ignore_result=True)
def die(path: str) -> None:
    """Kill the process of the pool that it runs in."""
    record(0, path)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def add(one: Any, other: Any) -> Any:
    """The sum of two."""
    return one + other


@app.task
def total(numbers: list[int]) -> int:
    """The sum of many."""
    return sum(numbers)


@app.task
def fail(text: str) -> None:
    """Raise a ValueError."""
    raise ValueError(text)


@app.task
def repeat(text: str, times: int) -> str:
    """A result that may be larger than the task."""
    return text * times


@app.task
def fail_at_length(times: int) -> None:
    """Raise an error that is larger than the task."""
    raise ValueError("x" * times)


@app.task
def unencodable() -> Any:
    """Return what no JSON holds."""
    return {object()}


@app.task(acks_late=True)
def reject(*, requeue: bool) -> None:
    """Reject the message, or return it to its queue."""
    raise Reject("no", requeue=requeue)


@app.task(acks_late=True, reject_on_worker_lost=True)
def die_each_time() -> None:
    """Kill the process of the pool that it runs in."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(ignore_result=True)
def ignored() -> None:
    """A task without a result."""


@app.task
def note(request: Any, error: Any, _: Any, key: str) -> None:
    """Store the type of an error as the result of another task: an errback."""
    app.backend.store_result(key, type(error).__name__, "SUCCESS")


class WithoutText(Exception):
    """An exception whose text cannot be asked for."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@app.task(acks_late=True, acks_on_failure_or_timeout=False, ignore_result=True)
def fail_late(how: str) -> None:
    """Fail with a text, one of a MiB, one of a lone surrogate, or without one."""
    if how == "without a text":
        raise WithoutText
    raise ValueError({"long": "x" * (1 << 20), "surrogate": "\udcff", "text": "no"}[how])


@app.task(acks_late=True)
def reject_for(reason: str, *, requeue: bool) -> None:
    """Reject the message because of an exception, or for a reason of another type."""
    try:
        raise OSError(reason)
    except OSError as error:
        raise Reject({"exception": error, "number": 17}.get(reason, reason), requeue) from None


@app.task(
    acks_late=True,
    acks_on_failure_or_timeout=False,
    autoretry_for=(ValueError,),
    max_retries=1,
    default_retry_delay=0,
)
def fail_after_a_retry() -> None:
    """Fail, and once more in another message."""
    raise ValueError("again")


@app.task(acks_late=True, acks_on_failure_or_timeout=False, time_limit=1, ignore_result=True)
def sleep_too_long() -> None:
    """Take longer than the time limit."""
    time.sleep(3600)
