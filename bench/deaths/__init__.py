"""A process that dies at the worst place: inside a queue's lock."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from bench.compiled import ROOT, compiled
from bench.stage import Failed


def die_inside(namespace: str, queue: str) -> None:
    """Let a process take the queue's lock and be killed while holding it."""
    program = compiled(Path(__file__).with_name("die_inside.c"), f"-I{ROOT / 'shmq/core'}")
    ended = subprocess.run(
        [str(program), f"/dev/shm/shmq@{namespace}@{queue}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != -signal.SIGKILL:
        raise Failed(f"the holder of the lock was not killed: {ended.stderr}")
