"""No task is lost when a worker of Celery is killed: some hundreds of tasks.

tests/extras/celery/prove has thousands, and kills of processes of the pool, over TCP and with lost
memory, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import shmq
from tests.support.celery_kills import WINDOW, doubled, is_settled, load
from tests.support.processes import is_empty

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

SIZE = 300


def test_no_task_is_lost_when_a_workers_main_process_is_killed(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    tasks = load(SIZE, tmp_path, f"shmq:///{namespace}")
    tasks.publish()
    with tasks.running():
        tasks.wait_until(0.3)
        tasks.workers[0].kill()
        found = tasks.finish(lambda: is_settled(broker))
    assert len(doubled(found)) <= WINDOW
    is_empty(broker.queue("celery"))
