"""Workers of which some run under a hindrance, and whose failures are kept in files."""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shmq.extras.stress.workers import WorkerProcesses
from shmq.native.descriptors import open_file
from tests.prove.soak.mixed.evidence import keep_evidence, log_stacks

Hindrance = Callable[[], None]

#: The share of the workers that run under a hindrance.
SHARE = 0.5


class Hindered(WorkerProcesses):
    """The workers. What ends one by itself, and the stacks of one that hangs, are in ``logs``."""

    def __init__(self, logs: Path, hindrances: Sequence[Hindrance], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._logs = logs
        self._hindrances = hindrances

    def run(self, work: Callable[..., None], worker: int) -> None:
        """See WorkerProcesses."""
        log = self._logs / f"{work.__name__}-{os.getpid()}.log"
        log_stacks(log)
        try:
            if self._hindrances and random.Random(worker).random() < SHARE:
                random.Random(os.getpid()).choice(self._hindrances)()
            super().run(work, worker)
        except BaseException:  # stderr may be closed
            os.write(open_file(log, os.O_WRONLY | os.O_APPEND), traceback.format_exc().encode())
            os._exit(1)

    def kill_all(self) -> None:
        """See WorkerProcesses; while an error is on its way, what they do is kept before."""
        if sys.exception() is not None:
            keep_evidence(self._logs)
        super().kill_all()
