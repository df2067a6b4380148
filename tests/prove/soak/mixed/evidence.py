"""What is kept of a soak that found a fault: stacks, processes, memory, and the writers' logs."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import psutil

from shmq.host.supervision.signals import SHOW_STACK
from shmq.native.descriptors import open_file
from tests.support.processes import SHM, catches

#: The largest file of shared memory that is kept, in bytes without its holes.
LARGEST: Final = 64 << 20
#: How long the processes may take to write their stacks, in seconds.
PAUSE = 1.0


def log_stacks(path: Path) -> None:
    """Append the stacks of this process's threads to the file whenever it gets `SHOW_STACK`."""
    log = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    faulthandler.register(SHOW_STACK, file=log, all_threads=True)


def keep_evidence(logs: Path) -> None:
    """Have all processes of the soak write their stacks; copy the logs and the shared memory."""
    processes = psutil.Process().children(recursive=True)
    if Path("/proc/1/comm").read_text() == "sh\n":  # they are alone in their namespace
        processes = list(psutil.process_iter())
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            lines.append(f"{process.pid} {process.ppid()} {process.status()} {process.cmdline()}")
            if catches(process.pid, SHOW_STACK):  # which ends any other one
                os.kill(process.pid, SHOW_STACK)
    with (logs / "processes.log").open("a") as listing:  # the part that failed, then the whole soak
        listing.write("\n".join([*lines, "", ""]))
    time.sleep(PAUSE)
    for log in (logs.parent / "disk").rglob("writer.log*"):
        shutil.copy(log, logs / f"{log.parent.name}-{log.name}")
    (logs / "shm").mkdir(exist_ok=True)
    for segment in SHM.glob("*shmq@*"):
        with contextlib.suppress(OSError):
            if segment.stat().st_blocks * 512 <= LARGEST:
                subprocess.run(["cp", "--sparse=always", segment, logs / "shm"], check=False)
