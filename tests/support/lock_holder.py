"""A process that holds a lock."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

from tests.support.processes import ROOT, environment

_HOLDS = """
import sys, shmq
broker = shmq.connect(sys.argv[1])
broker.lock(sys.argv[2]).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holding(namespace: str, lock: str) -> Iterator[int]:
    """Hold the lock in another process during the block; yields its pid. It may be stopped."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, namespace, lock],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGCONT)
            process.communicate()
