"""No task of thousands is lost when a process of Celery, a server or the memory is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import shmq
from tests.support.celery_kills import WINDOW, Load, doubled, is_settled, load
from tests.support.memory_loss import bring_back, lose_memory
from tests.support.processes import is_empty
from tests.support.server import serve
from tests.support.writer_process import running_writer

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

SIZE = int(os.environ.get("SHMQ_CELERY_TASKS", "3000"))


def test_no_task_is_lost_when_a_workers_main_process_is_killed(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    tasks = load(SIZE, tmp_path, f"shmq:///{namespace}")
    tasks.publish()
    with tasks.running():
        tasks.wait_until(0.4)
        tasks.workers[0].kill()
        found = tasks.finish(lambda: is_settled(broker))
    assert len(doubled(found)) <= WINDOW
    is_empty(broker.queue("celery"))
    assert broker.queue("celery.dlq").empty()


def test_no_task_is_lost_when_processes_of_the_pool_are_killed(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    tasks = load(SIZE, tmp_path, f"shmq:///{namespace}")
    tasks.publish()
    with tasks.running():
        for share, worker in zip((0.2, 0.4, 0.6), tasks.workers * 2, strict=False):
            tasks.wait_until(share)
            worker.pool()[0].kill()
        found = tasks.finish(lambda: is_settled(broker))
    assert len(doubled(found)) <= 3
    is_empty(broker.queue("celery"))
    assert broker.queue("celery.dlq").empty()


def test_no_task_is_lost_when_the_server_is_killed(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    with serve(namespace) as server:
        tasks = load(SIZE, tmp_path, server.url)
        tasks.publish()
        with tasks.running():
            for share in (0.3, 0.6):
                tasks.wait_until(share)
                (front_end,) = server.workers()
                os.kill(front_end, signal.SIGKILL)
            found = tasks.finish(lambda: is_settled(broker))
    # What a worker held came back at once, and may be done by both: at each kill, both windows.
    assert len(doubled(found)) <= 2 * 2 * (WINDOW + 1)
    is_empty(broker.queue("celery"))
    assert broker.queue("celery.dlq").empty()


@pytest.mark.debris  # semaphores of the queues that were in memory alone
def test_no_task_of_a_durable_queue_is_lost_with_the_memory(
    namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    with running_writer(namespace) as writer:
        options = {"durability": "journal", "confirm": "disk"}
        tasks = load(SIZE, tmp_path, f"shmq:///{namespace}", **options)
        tasks.publish()
        with tasks.running():
            tasks.wait_until(0.4)
            writer.kill()
            end(tasks)
        lose_memory(namespace)
        bring_back(namespace, writer.folder)
        writer.start()
        with tasks.running():
            found = tasks.finish(lambda: is_settled(broker))
        writer.stop()
    assert len(found) == tasks.size


def end(tasks: Load) -> None:
    """Kill the workers with all of their processes."""
    for worker in tasks.workers:
        worker.close()
