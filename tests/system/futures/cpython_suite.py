"""CPython's own tests of its process pool, run on that of shmq.futures.

``python -m tests.system.futures.cpython_suite``. The tests are those of the interpreter that runs
them, under every start method. What is left out is in `OMITTED`, by reason.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import pkgutil
import unittest
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from test.support import threading_helper

import shmq
import shmq.futures

OMITTED = {
    "reads attributes of the executor's thread, processes or queues": (
        "test_processes_terminate",
        "test_context_manager_shutdown",
        "test_del_shutdown",
        "test_shutdown_no_wait",
        "test_shutdown_deadlock_pickle",
        "test_saturation",
        "test_idle_process_reuse_one",
        "test_idle_process_reuse_multiple",
        "test_max_tasks_per_child",
        "test_max_tasks_per_child_defaults_to_spawn_context",
        "test_python_finalization_error",
        "test_process_fork_from_a_threadpool",
        "test_gh105829_should_not_deadlock_if_wakeup_pipe_full",
        "test_map_buffersize_when_buffer_is_full",
    ),
    "a killed worker breaks CPython's pool; here it affects its own call": (
        "test_killed_child",
        "test_force_shutdown_workers",
        "test_force_shutdown_workers_invalid_op",
        "test_force_shutdown_workers_kills",
        "test_force_shutdown_workers_terminates",
        "test_force_shutdown_workers_stops_pool",
        "test_force_shutdown_workers_dead",
        "test_force_shutdown_workers_not_started_yet",
        "test_terminate_workers",
        "test_terminate_workers_not_started_yet",
        "test_terminate_workers_stops_pool",
        "test_kill_workers",
        "test_kill_workers_not_started_yet",
        "test_kill_workers_stops_pool",
    ),
    "CPython cannot cancel the first calls, even if no worker has started": (
        "test_cancel_futures",
    ),
    "what cannot be unpickled breaks CPython's pool; here its error is that of the call": (
        "test_exit_at_task_unpickle",
        "test_error_at_task_unpickle",
        "test_error_during_result_unpickle_in_result_handler",
        "test_exit_during_result_unpickle_in_result_handler",
    ),
}


def run_with_shmq(run: Any) -> Any:
    """For the tests that start a program of their own."""

    def run_program(*arguments: str, **options: Any) -> Any:
        source = "from concurrent.futures import ProcessPool"
        return run(
            *(text.replace(source, "from shmq.futures import ProcessPool") for text in arguments),
            **options | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},  # where this shmq is
        )

    return run_program


def adapt(module: Any) -> None:
    """Expect the errors of shmq, and start its programs with it."""
    if hasattr(module, "BrokenProcessPool"):
        module.BrokenProcessPool = (BrokenProcessPool, shmq.WorkerDied)
    if hasattr(module, "assert_python_ok"):
        module.assert_python_ok = run_with_shmq(module.assert_python_ok)


class Executor(shmq.futures.ProcessPoolExecutor):
    """The executor, with the attribute by which the tests ask whether it is broken."""

    @property
    def _broken(self) -> str:
        return self._pool._broken


Executor.__name__ = "ProcessPoolExecutor"
#: It waits for other threads to end, and the guardian of a namespace stays for the next queue.
threading_helper.threading_cleanup = lambda *_: None
concurrent.futures.ProcessPoolExecutor = Executor  # type: ignore[assignment, misc]
suite: Any = importlib.import_module("test.test_concurrent_futures")
parts = pkgutil.iter_modules(getattr(suite, "__path__", ()))  # from Python 3.12 on
names = {part.name for part in parts} - {"__main__", "test_thread_pool", "test_interpreter_pool"}
modules = [suite, *(importlib.import_module(f"{suite.__name__}.{name}") for name in sorted(names))]
for module in modules:
    adapt(module)
    for name, kind in vars(module).copy().items():
        if not isinstance(kind, type) or not issubclass(kind, unittest.TestCase):
            continue
        if getattr(kind, "executor_type", None) is Executor:
            omitted = {test: None for tests in OMITTED.values() for test in tests}
            globals()[name] = type(name, (kind,), omitted | {"__module__": __name__})


if __name__ == "__main__":
    unittest.main(verbosity=2)
