"""Celery's own integration tests that need a broker and a backend alone, over shmq."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.celery_worker import celery_environment
from tests.support.sources import source_of

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

#: The modules of Celery's t/integration that are run, and which of their tests, as of ``-k``: of
#: canvases those of chords and groups, as the others are of Celery alone. Not run are the modules
#: of other backends (cache, database, redis, security, group_chains), of processes without a
#: broker (beat, loader, logfile, memory leaks, serialization), and of an outage of RabbitMQ
#: (connection_recovery).
MODULES = {
    "test_tasks.py": "",
    "test_inspect.py": "",
    "test_worker.py": "",
    "test_canvas.py": "test_chord or test_group",
}

#: The tests that are left out, each with the reason.
LEFT_OUT = {
    "test_inspect.py::test_Inspect::test_scheduled": (
        "a task with a time waits in the broker: no worker has it"
    ),
    "test_tasks.py::test_trace_log_arguments": (
        "they read the log of a worker in their process, which fails with every broker here"
    ),
    "test_tasks.py::test_task_replacement::test_replaced_task_nesting_level_0": (
        "it resets what its handler of task_received has set, if the worker is as quick as that"
    ),
    "test_canvas.py::test_chord::test_error_propagates_from_chord": (
        "Celery does not fail a group behind a failed task: it marks the test xfail with Redis"
    ),
    "test_canvas.py::test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": (
        "its tasks write to a server of Redis (it passes with one)"
    ),
    "test_worker.py::test_django_fixup": (
        "they take Django, and leave a worker's state behind in the process"
    ),
    "test_tasks.py::test_tasks::test_retry": "it waits for 30 s, to count a task's retries",
    "test_tasks.py::test_tasks::test_expired": "it waits for 16 s; the ttl is tested elsewhere",
    "test_tasks.py::test_tasks::test_revoke_keeps_state_of_task_started_elsewhere": (
        "each waits for 10 s, until no more replies come"
    ),
}

#: What Celery's own configuration of pytest says.
CONFIGURATION = """
[pytest]
python_classes = test_*
markers =
    amqp: of Celery
    flaky: of pytest-rerunfailures
    timeout: of pytest-timeout
"""


@pytest.mark.watchdog(900)
@pytest.mark.parametrize(("module", "chosen"), MODULES.items(), ids=list(MODULES))
def test_celerys_own_tests_pass(module: str, chosen: str, namespace: str, tmp_path: Path) -> None:
    shutil.copytree(source_of("celery") / "t", tmp_path / "t")
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)
    left_out = [f"--deselect=t/integration/{name}" for name in LEFT_OUT]
    url = f"shmq:///{namespace}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "celery.contrib.pytest"),
            *("-p", "no:cacheprovider", "-k", chosen, f"t/integration/{module}", *left_out),
        ],
        cwd=tmp_path,
        env=celery_environment(TEST_BROKER=url, TEST_BACKEND=url),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) > 0
