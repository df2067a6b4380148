"""Why a task's message came back, or became a dead letter: the exception of the task is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from tests.support.celery_worker import CeleryProcess, celery
from tests.support.waiting import PATIENCE

from .test_worker import ask

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

CLIENT = """
import json, sys
from tests.support import celery_tasks

for name, given, more in json.loads(sys.argv[1]):
    getattr(celery_tasks, name).apply_async(given, more)
print("null")
"""

#: The tasks, and the line of the error of their dead letters.
FAILURES: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "fail_late": (["text"], {}, "ValueError: no"),
    "reject": ([], {"requeue": True}, "no"),
    "reject_for exception": (["exception"], {"requeue": False}, "OSError: exception"),
    "reject_for number": (["number"], {"requeue": True}, "17"),
    "reject_for none": ([""], {"requeue": False}, "celery.exceptions.Reject: ('', False)"),
    "fail_after_a_retry": ([], {}, "ValueError: again"),
}


def settings(target: str) -> dict[str, str]:
    url = target if "://" in target else f"shmq:///{target}"
    options = json.dumps({"broker_transport_options": {"max_deliveries": 2}})
    return {"TEST_BROKER": url, "TEST_BACKEND": url, "TEST_CELERY": options}


def send(target: str, *tasks: tuple[str, list[Any], dict[str, Any]]) -> None:
    ask(CLIENT, json.dumps(tasks), **settings(target))


def dead_letters(target: str, count: int) -> Iterator[shmq.Message]:
    with shmq.connect(target) as broker:
        dead = broker.ensure_queue("celery.dlq", if_different="accept")
        for _ in range(count):
            with dead.get(timeout=PATIENCE) as letter:
                yield letter


def worker(target: str, pool: str) -> Any:
    return celery("worker", "-c", "1", "-P", pool, "-l", "info", **settings(target))


def error_of(letter: shmq.Message) -> shmq.Failure:
    assert letter.dead is not None
    assert letter.dead.error is not None
    return letter.dead.error


@pytest.mark.parametrize(
    "pool",
    [
        "prefork",
        pytest.param("solo", marks=pytest.mark.prove),
        pytest.param("threads", marks=pytest.mark.prove),
    ],
)
def test_a_dead_letter_has_the_exception_of_its_task(namespace: str, pool: str) -> None:
    running: CeleryProcess
    with worker(namespace, pool) as running:
        running.hears("ready")
        send(namespace, *((key.split()[0], *call[:2]) for key, call in FAILURES.items()))
        letters = list(dead_letters(namespace, len(FAILURES)))
        running.stop()

    errors = [error_of(letter) for letter in letters]
    assert sorted(map(str, errors)) == sorted(line for *_, line in FAILURES.values())
    assert all("celery_tasks.py" in error.trace for error in errors)


@pytest.mark.prove
def test_so_has_one_of_a_server(target: str) -> None:
    with worker(target, "prefork") as running:
        running.hears("ready")
        send(target, ("fail_late", ["text"], {}))
        (letter,) = dead_letters(target, 1)
        running.stop()

    assert str(error_of(letter)) == "ValueError: no"


@pytest.mark.prove
def test_a_task_whose_process_dies_or_takes_too_long_says_so(namespace: str) -> None:
    with worker(namespace, "prefork") as running:
        running.hears("ready")
        send(namespace, ("die_each_time", [], {}))
        (killed,) = dead_letters(namespace, 1)
        send(namespace, ("sleep_too_long", [], {}))
        (stopped,) = dead_letters(namespace, 1)
        running.stop()

    assert error_of(killed).type == "billiard.exceptions.WorkerLostError"
    assert "signal 9 (SIGKILL)" in error_of(killed).text
    assert str(error_of(stopped)) == "billiard.exceptions.TimeLimitExceeded: TimeLimitExceeded(1,)"


@pytest.mark.prove
@pytest.mark.parametrize("how", ["long", "surrogate", "without a text"])
def test_an_exception_with_any_text_does_not_keep_its_message(namespace: str, how: str) -> None:
    with worker(namespace, "prefork") as running:
        running.hears("ready")
        send(namespace, ("fail_late", [how], {}))
        (letter,) = dead_letters(namespace, 1)
        running.stop()

    error = error_of(letter)
    assert len(str(error).encode()) < 4096
    expected = {
        "long": "ValueError: xxx",
        "surrogate": "ValueError: \\udcff",
        "without a text": "tests.support.celery_tasks.WithoutText: its text raised RuntimeError",
    }
    assert str(error).startswith(expected[how])


def test_a_message_of_kombu_that_is_rejected_has_the_exception_that_is_handled(
    connection: Any, broker: shmq.Broker
) -> None:
    queue = connection.SimpleQueue("plain")
    queue.put("body")
    message = queue.get(timeout=PATIENCE)
    try:
        raise ValueError("SMTP refused")
    except ValueError:
        message.requeue()
    again = queue.get(timeout=PATIENCE)
    again.reject()

    with broker.queue("plain.dlq").get(timeout=PATIENCE) as letter:
        assert str(error_of(letter)) == "ValueError: SMTP refused"
