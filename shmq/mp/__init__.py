"""multiprocessing, with queues in shared memory: ``import shmq.mp as multiprocessing``.

Queue, JoinableQueue and SimpleQueue are shmq's, here and in the contexts that
``get_context`` returns. Everything else is multiprocessing's own. See
docs/use/multiprocessing.md.

>>> import shmq.mp as multiprocessing
>>> queue = multiprocessing.Queue()
>>> queue.put({"id": 1})
>>> queue.get()
{'id': 1}
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
from multiprocessing import (
    Array,
    AuthenticationError,
    Barrier,
    BoundedSemaphore,
    BufferTooShort,
    Condition,
    Event,
    Lock,
    Manager,
    Pipe,
    Pool,
    Process,
    ProcessError,
    RawArray,
    RawValue,
    RLock,
    Semaphore,
    TimeoutError,  # noqa: A004 - multiprocessing's
    Value,
    active_children,
    allow_connection_pickling,
    cpu_count,
    current_process,
    freeze_support,
    get_all_start_methods,
    get_logger,
    get_start_method,
    log_to_stderr,
    parent_process,
    reducer,
    set_executable,
    set_forkserver_preload,
    set_start_method,
)
from typing import Any

from shmq.mp import queues
from shmq.mp.contexts import get_context
from shmq.mp.queues import JoinableQueue, Queue, ShutDown, SimpleQueue

__all__ = [
    "Array",
    "AuthenticationError",
    "Barrier",
    "BoundedSemaphore",
    "BufferTooShort",
    "Condition",
    "Event",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "ProcessError",
    "Queue",
    "RLock",
    "RawArray",
    "RawValue",
    "Semaphore",
    "ShutDown",
    "SimpleQueue",
    "TimeoutError",
    "Value",
    "active_children",
    "allow_connection_pickling",
    "cpu_count",
    "current_process",
    "freeze_support",
    "get_all_start_methods",
    "get_context",
    "get_logger",
    "get_start_method",
    "log_to_stderr",
    "parent_process",
    "queues",
    "reducer",
    "set_executable",
    "set_forkserver_preload",
    "set_start_method",
]


def __getattr__(name: str) -> Any:
    """Any other attribute or submodule of multiprocessing."""
    if not name.startswith("_") and importlib.util.find_spec(f"multiprocessing.{name}"):
        return importlib.import_module(f"multiprocessing.{name}")
    return getattr(multiprocessing, name)
