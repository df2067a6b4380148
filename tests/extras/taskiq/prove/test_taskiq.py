"""Taskiq's own published tests of what a broker does, with shmq in place of that in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import serve
from tests.support.suite import LIMIT, Others, run_suite

MEMORY = "of the broker in memory itself"
ENCODED = "an error is encoded by its class and arguments, and pydantic's have none"
DELAY = "the broker in memory does not obey the delay between its retries"
BEGUN = "gives a worker 0.3 s to begin three tasks"
SENT = "expects that a task of 0.2 s has not ended when its sender goes on"

FILES: Others = {
    "api/test_receiver_task.py": {},
    "api/test_scheduler.py": {},
    "brokers/test_inmemory.py": {
        "test_cannot_listen": MEMORY,
        "test_inline_awaits": MEMORY,
        "test_wait_all": SENT,
    },
    "depends/test_progress_tracker.py": {"test_progress_tracker_validation_error": ENCODED},
    "middlewares/test_task_retry.py": {
        "test_wait_result_error": MEMORY,
        "test_wait_result_no_result": MEMORY,
        "test_per_task_exc_types_matching[SmartRetryMiddleware]": DELAY,
        "test_per_task_exc_types_override_global[SmartRetryMiddleware]": DELAY,
        "test_retry_of_custom_exc_types_of_smart_middleware": DELAY,
    },
    "receiver/test_receiver.py": {"test_callback_semaphore": BEGUN},
    "test_requeue.py": {},
    "test_retry_task.py": {},
}


@pytest.mark.parametrize("transport", ["memory", "tcp"])
@pytest.mark.watchdog(LIMIT + 60)
def test_the_tests_of_taskiq_pass(transport: str, namespace: str, tmp_path: Path) -> None:
    ini = "anyio_mode = auto\nlog_level = INFO\n"
    if transport == "memory":
        run_suite("taskiq", FILES, namespace, tmp_path, helper="utils.py", ini=ini)
    else:
        with serve(namespace) as server:
            run_suite("taskiq", FILES, server.url, tmp_path, helper="utils.py", ini=ini)
