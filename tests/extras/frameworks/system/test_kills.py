"""Tasks run at least once, whatever is killed: some hundreds; tests/prove has the thousands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import task_kills
from tests.support.task_workers import FRAMEWORKS, Framework

COUNT = 300


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.name)
def test_tasks_of_killed_workers_run(framework: Framework, namespace: str, tmp_path: Path) -> None:
    task_kills.kill_workers(framework, namespace, tmp_path, COUNT)
