"""All soaks at once, in one namespace: queue, server, journal, stream, group, transactions.

Processes of every kind are killed and stopped at random, so that each meets locks that others
hold while they are dead or stand still. Beside that are the `INGREDIENTS`: the disk is full at
times, workers run without standard descriptors or with frozen clocks, and processes attach that
name another data directory.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from shmq.extras.stress.workers import WorkerProcesses
from shmq.host.namespace.namespace import Namespace
from tests.prove.soak import streams, tcp, transactions
from tests.prove.soak.mixed import directories, disk_users
from tests.prove.soak.mixed.closed_descriptors import close_descriptors
from tests.prove.soak.mixed.crew import Hindered, Hindrance
from tests.prove.soak.mixed.evidence import keep_evidence, log_stacks
from tests.prove.soak.mixed.frozen_clock import freeze_all_clocks, freeze_wall_clock
from tests.prove.soak.mixed.small_disk import Filler, on_small_disk, why_no_disk
from tests.support.processes import ROOT, SHM, environment
from tests.support.waiting import PATIENCE, eventually

INGREDIENTS: Final = ("full-disk", "closed-descriptors", "frozen-clocks", "directories")
#: Of those who are chosen, so many stand still instead of being killed.
STOPPED = 0.25
#: Each transaction soak has as many records as its streams hold, so there are several of them.
ROUND = 10.0
#: The size of the disk in bytes, and how much is written to it in a second at most.
DISK, PER_SECOND = 256 << 20, 4 << 20
#: How long the parts may take to end, in seconds; each wait within one ends after `PATIENCE`.
ENDING = 6 * PATIENCE

Crew = Callable[..., WorkerProcesses]

_SPAWN = multiprocessing.get_context("spawn")


def soak(seconds: float, seed: int, without: Collection[str] = ()) -> str:
    """What each part counted, as text. Raises AssertionError where one of them found a fault.

    The ingredients ``without`` are left out, and so is a full disk where none can be mounted. After
    a fault the logs of all processes are kept, in the directory that the error names.
    """
    folder = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
    for name in ("disk", "logs"):
        (folder / name).mkdir(mode=0o700)
    reason = why_no_disk()
    left_out = sorted({*without, *(["full-disk"] if reason else [])})
    before = () if reason else on_small_disk(folder / "disk", DISK + int(seconds) * PER_SECOND)
    done = subprocess.run(
        [
            *before, sys.executable, "-m", __package__, str(folder),
            "--seconds", str(seconds), "--seed", str(seed), "--without", *left_out,
        ],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    (folder / "logs" / "output.log").write_text(done.stdout)
    assert not done.returncode, f"{done.stdout[-20_000:]}\nthe logs are in {folder / 'logs'}"
    shutil.rmtree(folder)
    skipped = f"full-disk: left out, no disk can be mounted ({reason})\n" if reason else ""
    return skipped + done.stdout


def run(folder: Path, seconds: float, seed: int, without: Collection[str]) -> None:
    """Run the parts, and print what each of them counted. Raises AssertionError."""
    namespace = f"soak-{secrets.token_hex(4)}"
    disk, logs = folder / "disk", folder / "logs"
    os.environ |= {
        "SHMQ_DATA_DIR": str(disk), "SHMQ_STATE_DIR": str(folder / "state"),
        "SHMQ_AUTOSTART_IDLE": "2",
    }  # fmt: skip
    log_stacks(logs / "run.log")
    hindrances: list[Hindrance] = []
    if "closed-descriptors" not in without:
        hindrances.append(close_descriptors)
    if "frozen-clocks" not in without:
        hindrances += [freeze_wall_clock, freeze_all_clocks]
    filler = Filler(disk) if "full-disk" not in without else None
    crew = functools.partial(Hindered, logs, hindrances)
    works: dict[str, tuple[Any, ...]] = {
        "queue": (_queue, seconds, seed, namespace, disk / namespace, crew),
        "stream": (_stream, seconds, seed + 1, namespace, crew),
        "transactions": (_transactions, seconds, seed + 2, namespace),
        "disk": (disk_users.soak, seconds, seed + 3, namespace, filler, logs, hindrances),
    }
    if "directories" not in without:
        works["directories"] = (directories.soak, seconds, seed + 4, namespace, folder / "other")
    parts = {name: _Part(name, logs, *work) for name, work in works.items()}
    try:
        end = time.monotonic() + 2 * seconds + ENDING  # it judges as long as it has run
        for name, part in parts.items():
            print(f"{name}: {part.outcome(end)}", flush=True)
        eventually(lambda: not _left(namespace), f"nothing is left of {namespace} in {SHM}")
    except BaseException:
        keep_evidence(logs)
        raise
    finally:
        for part in parts.values():
            part.close()


def _left(namespace: str) -> list[str]:
    for each in (namespace, disk_users.namespace_of(namespace)):
        Namespace.of(each).retire()  # a part, or a writer, was in it as the others ended
    return [path.name for path in SHM.iterdir() if f"@{namespace}" in path.name]


class _Part:
    """One of the soaks, in a process of its own."""

    def __init__(self, name: str, logs: Path, work: Callable[..., Any], *arguments: Any) -> None:
        self._name = name
        self._ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=_run, args=(theirs, logs / f"{name}.log", work, *arguments)
        )
        self._process.start()
        theirs.close()

    def outcome(self, end: float) -> str:
        """What it counted, once it is over; ``end``: when it hangs, on the monotonic clock."""
        assert self._ours.poll(max(0.0, end - time.monotonic())), f"part {self._name} hangs"
        found = ""
        with contextlib.suppress(EOFError):
            found = self._ours.recv()
        self._process.join()
        assert self._process.exitcode == 0, (
            f"part {self._name} of the soak ended with {self._process.exitcode}"
        )
        return found

    def close(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.join()


def _run(
    answer: Connection[Any, Any], log: Path, work: Callable[..., Any], *arguments: Any
) -> None:
    os.environ["SHMQ_AUTOSTART"] = "1"  # the package `tests` has switched it off
    log_stacks(log)
    start = time.monotonic()
    outcome = work(*arguments)
    answer.send(f"{outcome}, in {time.monotonic() - start:.0f} s")


def _queue(seconds: float, seed: int, namespace: str, data_dir: Path, crew: Crew) -> str:
    verdict, killed, served = tcp.soak(
        seconds, seed, namespace=namespace, stopped=STOPPED, data_dir=data_dir, workers_of=crew
    )
    assert not verdict.wrong(), verdict
    return f"{verdict.put} messages confirmed, {killed} clients and {served} front ends killed"


def _stream(seconds: float, seed: int, namespace: str, crew: Crew) -> str:
    verdict, killed = streams.soak(
        seconds, seed, namespace, stopped=STOPPED, workers_of=crew,
        durability="journal", confirm="disk",
    )  # fmt: skip
    assert not verdict.wrong(), verdict.wrong()
    return f"{verdict.appended} records confirmed, {killed} processes killed"


def _transactions(seconds: float, seed: int, namespace: str) -> str:
    records = killed = 0
    for number in range(max(1, round(seconds / ROUND))):
        outcome = transactions.soak(
            min(seconds, ROUND), seed + number, 10_000, 2_000, namespace, stopped=STOPPED
        )
        assert not outcome.wrong(), outcome
        records, killed = records + outcome.records, killed + outcome.killed
    return f"{records} records passed on, {killed} processes killed"
