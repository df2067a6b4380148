"""Workers that are each the first process of a PID namespace of their own, as in a container."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shmq.extras.stress.workers import WorkerProcesses

CLONE_NEWPID = 0x20000000

_libc = ctypes.CDLL(None, use_errno=True)


class Contained(WorkerProcesses):
    """The workers; their parent needs the right to make PID namespaces."""

    def start(self, work: Callable[..., None]) -> int:
        """See WorkerProcesses."""
        with _new_pid_namespace():
            return super().start(work)


def why_not_contained() -> str:
    """Why no PID namespace can be made here; empty if one can."""
    try:
        with _new_pid_namespace():
            return ""
    except OSError as error:
        return str(error)


@contextlib.contextmanager
def _new_pid_namespace() -> Iterator[None]:
    """For the block, the next child of this process is the first of a new PID namespace.

    No thread can be started meanwhile. Raises OSError.
    """
    with Path("/proc/self/ns/pid").open("rb") as own:
        if _libc.unshare(CLONE_NEWPID):
            raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            if _libc.setns(own.fileno(), CLONE_NEWPID):
                raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
