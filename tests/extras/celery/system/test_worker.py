"""A worker of Celery and its clients, which know nothing of shmq but URLs."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import shmq
from tests.support.celery_worker import celery, celery_environment
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.processes import ROOT
from tests.support.server import serve
from tests.support.waiting import PATIENCE

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

CLIENT = """
import json
from celery import chord, group
from tests.support.celery_tasks import add, app, fail, total

wait = {"timeout": 60}
print(json.dumps({
    "group": group(add.s(n, n) for n in range(3))().get(**wait),
    "chord": chord((add.s(n, n) for n in range(3)), total.s())().get(**wait),
    "chain": (add.s(1, 2) | add.s(3)).delay().get(**wait),
    "countdown": add.apply_async((1, 1), countdown=0.1).get(**wait),
    "failure": repr(fail.delay("no").get(propagate=False, **wait)),
    "ping": list(app.control.ping(limit=1, **wait)[0].values()),
}))
"""
ANSWER = {
    "group": [0, 2, 4],
    "chord": 6,
    "chain": 6,
    "countdown": 2,
    "failure": "ValueError('no')",
    "ping": [{"ok": "pong"}],
}


#: 255 bytes with the host's name.
NODE = "订单处理@" + "höst" * 48 + "xy"
LONG_QUEUE = "größe/" * 31 + "7 bytes"

VALUES = """
import json, sys, time
from celery import chord, exceptions
from tests.support.celery_tasks import (
    add, app, fail_at_length, repeat, total, unencodable
)

wait = {"timeout": 60}
past = {"eta": app.now().replace(year=1971)}
node, queue = sys.argv[1:]
TOO_LARGE = (16 << 20) + 1


def outcome(result, **more):
    try:
        return result.get(**{**wait, **more})
    except Exception as error:
        return type(error).__name__


print(json.dumps({
    "numbers": [outcome(add.delay(*pair)) for pair in ((2**70, 1), (-1e308, -1e308))],
    "interval": [outcome(add.delay(1, 1), interval=value) for value in (0, -1, None)],
    "timeout": [outcome(app.AsyncResult("none"), timeout=value) for value in (0, -1)],
    "priority": [
        outcome(add.apply_async((1, 1), priority=value)) for value in (None, -1, 10, 2**70)
    ],
    "time": [
        outcome(add.apply_async((1, 1), **value)) for value in ({"countdown": -1}, past)
    ],
    "expired": [
        outcome(add.apply_async((1, 1), **value))
        for value in ({"expires": 0}, {"expires": -5}, {"countdown": 3600, "expires": 0.2})
    ],
    "results": [
        outcome(one)
        for one in (repeat.delay("x", TOO_LARGE), fail_at_length.delay(TOO_LARGE),
                    unencodable.delay())
    ],
    "workflows": [
        outcome(one)
        for one in ((repeat.s("x", TOO_LARGE) | add.s("y")).delay(),
                    chord([repeat.s("x", TOO_LARGE), add.s(1, 1)], total.s()).delay())
    ],
    "unknown": outcome(app.send_task("none")),
    "large": len(outcome(repeat.delay("x", (16 << 20) - 1024))),
    "queue": outcome(add.apply_async((1, 1), queue=queue)),
    "ping": list(app.control.ping(destination=[node], **wait)[0]) == [node],
    "queues": [
        one["name"] for one in app.control.inspect([node], timeout=60).active_queues()[node]
    ],
}))
"""
OUTCOMES = {
    "numbers": [2**70 + 1, float("-inf")],
    "interval": [2, 2, 2],
    "timeout": ["TimeoutError"] * 2,
    "priority": [2] * 4,
    "time": [2] * 2,
    "expired": ["TaskRevokedError"] * 3,
    "results": ["ResultNotStored", "ResultNotStored", "EncodeError"],
    "unknown": "NotRegistered",
    "large": (16 << 20) - 1024,
    "queue": 2,
    "ping": True,
    "queues": ["celery", LONG_QUEUE],
}


def ask(client: str = CLIENT, *arguments: str, **more: str) -> object:
    """What the client prints."""
    done = subprocess.run(
        [sys.executable, "-c", client, *arguments],
        cwd=ROOT,
        env=celery_environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.prove
def test_a_worker_of_processes_answers_on_this_host(namespace: str, broker: shmq.Broker) -> None:
    url = {"TEST_BROKER": f"shmq:///{namespace}", "TEST_BACKEND": f"shmq:///{namespace}"}
    with celery("worker", "-c", "2", "-l", "info", **url) as worker:
        worker.hears("ready")
        assert ask(**url) == ANSWER
        worker.stop()
    assert broker.queue("celery").stats().in_flight == 0


@pytest.mark.prove
def test_every_value_works_or_is_an_error_at_once(target: str, namespace: str) -> None:
    url = target if "://" in target else f"shmq:///{target}"
    urls = {"TEST_BROKER": url, "TEST_BACKEND": url}
    worker_flags = ("-c", "2", "-l", "info", "-n", NODE, "-Q", f"celery,{LONG_QUEUE}")
    assert len(NODE.encode()) == len(LONG_QUEUE.encode()) == 255
    with celery("worker", *worker_flags, **urls) as worker:
        worker.hears("ready")
        # The link of a chain takes its result with it: too large a message for a server.
        links = ["EncodeError" if "://" in target else "ResultNotStored", "ResultNotStored"]
        assert ask(VALUES, NODE, LONG_QUEUE, **urls) == {**OUTCOMES, "workflows": links}
        worker.stop()


@pytest.mark.prove
@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_other_pools_answer(pool: str, namespace: str) -> None:
    if pool == "gevent":
        pytest.importorskip("gevent", reason="the package gevent is not installed")
    url = {"TEST_BROKER": f"shmq:///{namespace}", "TEST_BACKEND": f"shmq:///{namespace}"}
    with celery("worker", "-c", "2", "-l", "info", "-P", pool, **url) as worker:
        worker.hears("ready")
        assert ask(**url) == ANSWER
        worker.stop()


@pytest.mark.prove
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
def test_a_worker_answers_over_tls_with_a_token(namespace: str, tmp_path: Path) -> None:
    secret = secrets.token_hex()
    tokens = {secret: {"admin": ["*"], "produce": ["*"], "consume": ["*"]}}
    authority = Certificates(tmp_path)
    certificate, key = authority.sign("server")
    files = {"certificate": certificate, "key": key}
    with serve(namespace, tokens=tokens, tls=files) as server:
        server_url = f"shmqs://:{secret}@127.0.0.1:{server.port}?ssl_ca_certs={authority.ca}"
        url = {"TEST_BROKER": server_url, "TEST_BACKEND": server_url}
        with celery("worker", "-c", "2", "-l", "info", **url) as worker:
            worker.hears("ready")
            assert ask(**url) == ANSWER
            worker.stop()
            assert secret not in worker.log
        assert secret not in server.log


@pytest.mark.prove
def test_the_default_namespace_is_that_of_the_environment(
    namespace: str, broker: shmq.Broker
) -> None:
    url = {"TEST_BROKER": "shmq://", "TEST_BACKEND": "shmq://", "SHMQ_NAMESPACE": namespace}
    with celery("worker", "-c", "1", "-l", "info", **url) as worker:
        worker.hears("ready")
        assert ask(**url) == ANSWER
        worker.stop()
    assert "celery" in broker.queue_names()


@pytest.mark.prove
def test_results_come_over_rpc_too(namespace: str) -> None:
    url = {"TEST_BROKER": f"shmq:///{namespace}", "TEST_BACKEND": "rpc://"}
    with celery("worker", "-c", "2", "-l", "info", **url) as worker:
        worker.hears("ready")
        without_chord = "\n".join(line for line in CLIENT.splitlines() if '"chord"' not in line)
        expected = {name: answer for name, answer in ANSWER.items() if name != "chord"}
        assert ask(without_chord, **url) == expected
        worker.stop()
