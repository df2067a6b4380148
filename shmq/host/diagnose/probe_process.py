"""Runs work on memory that may be damaged in a separate process.

A segment that is truncated under its mapping kills a process that reads it, and a lock whose
bytes are damaged looks like one that is held forever. Neither may prevent a check of the other
queues.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from shmq.errors import ShmqError
from shmq.native._core import reserve_standard


class ProbeTimeout(ShmqError):
    """The work did not end in time."""


class Crashed(ShmqError):
    """The process that did the work was killed by a signal, or failed."""


def run_in_child(work: Callable[[], Any], seconds: float) -> Any:
    """Call ``work`` in a fork of this process; its result must be JSON.

    Raises :class:`ProbeTimeout` if it takes longer than ``seconds``, and :class:`Crashed`.
    """
    reserve_standard()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _carry_out(work, writer)
    os.close(writer)
    ended = False
    try:
        said = _read(reader, time.monotonic() + seconds)
        if said is None:
            raise ProbeTimeout(f"it did not end within {seconds:g} s")
        code, ended = _reap(child), True
        return _load_result(said, code)
    finally:
        os.close(reader)
        if not ended:
            os.kill(child, signal.SIGKILL)
            _reap(child)


def _carry_out(work: Callable[[], Any], writer: int) -> NoReturn:
    """Run the work in the child, and exit."""
    faulthandler.disable()  # a bus error is an expected result
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        said = json.dumps({"done": work()})
    except BaseException:  # noqa: BLE001 - the parent gets it
        said = json.dumps({"failed": traceback.format_exc()})
    with contextlib.suppress(OSError), open(writer, "w") as pipe:
        pipe.write(said)
    os._exit(0)


def _read(reader: int, until: float) -> bytes | None:
    """Everything that the child wrote; None if it did not end in time."""
    said = b""
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        more = os.read(reader, 65536)
        if not more:
            return said
        said += more
    return None


def _reap(child: int) -> int:
    """The exit code of the child; negative: the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _load_result(said: bytes, code: int) -> Any:
    if code < 0:
        raise Crashed(f"the process that read it was killed by {signal.Signals(-code).name}")
    reply = json.loads(said)
    if "failed" in reply:
        raise Crashed(reply["failed"].strip().splitlines()[-1])
    return reply["done"]
