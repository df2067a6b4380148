"""A worker: the process that executes calls."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from shmq.api import Message
from shmq.client.local.queue import LocalQueue
from shmq.errors import ShmqError
from shmq.futures.activity import Activities, Activity
from shmq.futures.parcel import pack_error, pass_on, put_parcel, read_parcel, wait_for_locks
from shmq.mp.store import Store


class Assignment(NamedTuple):
    """The parameters of a worker; ``limit`` is the largest number of calls that it executes."""

    namespace: str
    calls: str
    results: str
    activities: Activities
    slot: int
    initializer: Callable[..., object] | None
    initargs: tuple[Any, ...]
    limit: int | None


def work(assignment: Assignment) -> None:
    """Execute calls until a signal to end arrives, or the pool's process dies."""
    threading.Thread(target=_end_with_parent, name="shmq pool's process", daemon=True).start()
    if assignment.initializer is not None:
        try:
            assignment.initializer(*assignment.initargs)
        except BaseException:
            logging.getLogger("concurrent.futures").critical(
                "Exception in initializer:", exc_info=True
            )
            sys.exit(1)
    calls, results = (
        wait_for_locks(functools.partial(Store.attach, assignment.namespace, name))
        for name in (assignment.calls, assignment.results)
    )
    activity = assignment.activities.slot(assignment.slot)
    activity.get_ready()
    count = 0
    # Ctrl-C between two calls ends the worker, and so does the end of the pool's process.
    with contextlib.suppress(KeyboardInterrupt, ShmqError):
        while count != assignment.limit and _execute_next(calls.queue, results.queue, activity):
            count += 1


def _execute_next(calls: LocalQueue, results: LocalQueue, activity: Activity) -> bool:
    """Execute one call; return whether there was one, not the signal to end.

    Its message is leased until the result is in the queue of results: see `Pool`.
    """
    message = calls.get()
    if message.correlation is None:
        wait_for_locks(message.ack)
        return False
    if message.delivery_count > 1:  # a worker has died with it: the pool decides
        pass_on(message, results, f"{message.correlation}.{message.sequence}", block=True)
        wait_for_locks(message.ack)
        return True
    number = int(message.correlation)
    activity.begin(number, message.receipt)
    _put_result(results, number, *_call(message))
    wait_for_locks(message.ack)
    activity.end()
    return True


def _call(message: Message) -> tuple[bool, Any]:
    """Execute a call; return whether it succeeded, and its result or its error."""
    try:
        function, arguments, keywords = read_parcel(message)
        return True, function(*arguments, **keywords)
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller
        return False, pack_error(error)


def _put_result(results: LocalQueue, number: int, success: bool, value: Any) -> None:
    """Put the result, or why it cannot be put."""
    try:
        put_parcel(results, number, (success, value), for_locks=True)
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller
        put_parcel(results, number, (False, pack_error(error)), for_locks=True)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
