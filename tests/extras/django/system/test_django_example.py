"""The example of Django, run as its user does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import shmq
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE, eventually

MANAGE = [sys.executable, "-m", "examples.django.manage"]


@pytest.mark.prove
def test_the_shop_packs_what_is_ordered_and_has_its_customers_told(
    broker: shmq.Broker, tmp_path: Path
) -> None:
    env = environment(SHMQ_NAMESPACE=broker.namespace)
    log = tmp_path / "log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [*MANAGE, "shmq_worker"], cwd=ROOT, env=env, stdout=output, stderr=output
        )
    try:
        done = subprocess.run(
            [*MANAGE, "order", "tea", "--count", "2"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.stdout == "packed: {'item': 'tea', 'count': 2, 'price': 8}\n", done.stderr
        failed = subprocess.run(
            [*MANAGE, "order", "gold"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (failed.returncode, "builtins.KeyError" in failed.stderr) == (1, True)
        mails = broker.queue("django.mails")
        eventually(lambda: mails.stats().acked == 1, "the customer is told")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()
