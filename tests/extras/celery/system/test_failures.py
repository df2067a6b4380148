"""The results of tasks that no worker runs to an end: a caller does not wait for them in vain."""

from __future__ import annotations

import json

import pytest

from tests.support.celery_worker import celery

from .test_worker import ask

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

CLIENT = """
import json, sys
from celery import chord
from tests.support.celery_tasks import add, app, die_each_time, ignored, note, reject, total

wait = {"timeout": 60}


def outcome(result):
    try:
        return result.get(**wait)
    except Exception as error:
        return begins(f"{type(error).__name__}: {error}")


def sent(name, body=b"[[1, 1], {}, {}]", task=add.name, **headers):
    with app.connection_for_write() as connection:
        connection.Producer().publish(
            body, routing_key="celery", content_type="application/json",
            content_encoding="utf-8", headers={"task": task, "id": name, **headers},
        )
    return app.AsyncResult(name)


def begins(text):
    return next((one for one in json.loads(sys.argv[1]) if text.startswith(one)), text)


ignored.apply_async(task_id="declared", serializer="pickle")
add.apply_async((1, 1), task_id="called", serializer="pickle", ignore_result=True)
reject.apply_async(kwargs={"requeue": True}, link_error=note.s("errback"))
print(json.dumps({
    "rejected": outcome(reject.delay(requeue=False)),
    "exhausted": outcome(reject.delay(requeue=True)),
    "killed": outcome(die_each_time.delay()),
    "not accepted": outcome(add.apply_async((1, 1), serializer="pickle")),
    "not JSON": outcome(sent("not JSON", b"[1, ")),
    "not compressed": outcome(sent("not compressed", compression="application/x-gzip")),
    "no time": outcome(sent("no time", eta="tomorrow")),
    "unknown": outcome(sent("unknown", task="none")),
    "chord": outcome(chord([add.s(1, 1), reject.s(requeue=True)], total.s()).delay()),
    "chain": outcome((reject.s(requeue=True) | add.s(1)).delay()),
    "errback": outcome(app.AsyncResult("errback")),
    "ignored, by its declaration": app.AsyncResult("declared").state,
    "ignored, by its call": app.AsyncResult("called").state,
}))
"""

EXHAUSTED = "DeliveriesExhausted: it was delivered 2 times and never finished"
#: Texts of Celery and Python as far as they are the same in all versions.
BEGINNINGS = (
    "ContentDisallowed: Refusing to deserialize",
    "DecodeError: JSONDecodeError(",
    "error: Error -3 while decompressing data",
    "InvalidTaskError: invalid ETA value 'tomorrow'",
)
OUTCOMES = {
    "rejected": "Reject: ('no', False)",
    "exhausted": EXHAUSTED,
    "killed": EXHAUSTED,
    **dict(zip(("not accepted", "not JSON", "not compressed", "no time"), BEGINNINGS, strict=True)),
    "unknown": "NotRegistered: 'none'",
    "chord": EXHAUSTED,
    "chain": EXHAUSTED,
    "errback": "DeliveriesExhausted",
    "ignored, by its declaration": "PENDING",
    "ignored, by its call": "PENDING",
}


@pytest.mark.prove
def test_a_task_that_no_worker_runs_to_an_end_has_failed_for_its_caller(target: str) -> None:
    url = target if "://" in target else f"shmq:///{target}"
    settings = json.dumps({"broker_transport_options": {"max_deliveries": 2}})
    urls = {"TEST_BROKER": url, "TEST_BACKEND": url, "TEST_CELERY": settings}
    with celery("worker", "-c", "1", "-l", "info", **urls) as worker:
        worker.hears("ready")
        found = ask(CLIENT, json.dumps(BEGINNINGS), **urls)
        worker.stop()

    assert found == OUTCOMES
