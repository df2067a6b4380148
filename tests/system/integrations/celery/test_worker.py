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
from tests.support.processes import PATIENCE, ROOT
from tests.support.server import serve

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


def ask(client: str = CLIENT, **more: str) -> object:
    """What the client prints."""
    done = subprocess.run(
        [sys.executable, "-c", client],
        cwd=ROOT,
        env=celery_environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_worker_of_processes_answers_on_this_host(namespace: str, broker: shmq.Broker) -> None:
    url = {"TEST_BROKER": f"shmq:///{namespace}", "TEST_BACKEND": f"shmq:///{namespace}"}
    with celery("worker", "-c", "2", "-l", "info", **url) as worker:
        worker.hears("ready")
        assert ask(**url) == ANSWER
        worker.stop()
    assert broker.queue("celery").stats().in_flight == 0


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
