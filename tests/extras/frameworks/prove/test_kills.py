"""Thousands of tasks run at least once, whatever is killed. More: ``SHMQ_TASKS=100000``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import task_kills
from tests.support.task_workers import FRAMEWORKS, Framework

COUNT = int(os.environ.get("SHMQ_TASKS", "3000"))

SCENARIOS = (task_kills.kill_workers, task_kills.kill_the_server, task_kills.lose_the_memory)


@pytest.mark.debris  # the memory that is lost leaves its semaphores
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.name)
def test_tasks_run_whatever_is_killed(
    framework: Framework,
    scenario: Callable[[Framework, str, Path, int], None],
    namespace: str,
    tmp_path: Path,
) -> None:
    scenario(framework, namespace, tmp_path, COUNT)
