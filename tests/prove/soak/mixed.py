"""All soaks at once, in one namespace: queue, server, journal, stream, group, transactions.

Processes of every kind are killed and stopped at random, so that each meets locks that others
hold while they are dead or stand still.
"""

from __future__ import annotations

import multiprocessing
import secrets
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shmq.namespace.namespace import Namespace
from tests.prove.soak import streams, tcp, transactions
from tests.support.processes import SHM

__all__ = ["soak"]

#: Of those who are chosen, so many stand still instead of being killed.
STOPPED = 0.25
#: Each transaction soak has as many records as its streams hold, so there are several of them.
ROUND = 10.0

_SPAWN = multiprocessing.get_context("spawn")


def soak(seconds: float, seed: int) -> dict[str, Any]:
    """What each part counted; raises AssertionError where one of them found a fault."""
    namespace = f"soak-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="shmq-soak-") as data_dir:
        parts = {
            "queue": _Part(_queue, seconds, seed, namespace, data_dir),
            "stream": _Part(_stream, seconds, seed + 1, namespace),
            "transactions": _Part(_transactions, seconds, seed + 2, namespace),
        }
        found = {name: part.outcome() for name, part in parts.items()}
    Namespace.of(namespace).retire()  # each part was in it as the others ended
    left = [path.name for path in SHM.iterdir() if f"@{namespace}" in path.name]
    assert not left, f"left behind in /dev/shm: {left}"
    return found


class _Part:
    """One of the soaks, in a process of its own."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_run, args=(theirs, work, *arguments))
        self._process.start()
        theirs.close()

    def outcome(self) -> Any:
        """What it counted, once it is over."""
        try:
            found = self._ours.recv()
        except EOFError:
            found = None
        self._process.join()
        assert self._process.exitcode == 0, (
            f"a part of the soak ended with {self._process.exitcode}"
        )
        return found


def _run(answer: Connection[Any, Any], work: Callable[..., Any], *arguments: Any) -> None:
    answer.send(work(*arguments))


def _queue(seconds: float, seed: int, namespace: str, data_dir: str) -> str:
    verdict, killed, served = tcp.soak(
        seconds, seed, namespace=namespace, stopped=STOPPED, data_dir=Path(data_dir)
    )
    assert not verdict.wrong(), verdict
    return f"{verdict.put} messages confirmed, {killed} clients and {served} front ends killed"


def _stream(seconds: float, seed: int, namespace: str) -> str:
    verdict, killed = streams.soak(seconds, seed, namespace, stopped=STOPPED)
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
