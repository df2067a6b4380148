"""Runs processes together, each on its core, and collects their results.

A side is a function ``act(stage, *arguments)`` in its own process. Its return value is sent
back; if it raises, all sides end and the measurement raises the error. ``stage.meet()`` returns
once every side has called it, so that the clock starts when all are ready.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from bench.machine import pin

#: How long the sides may take, in seconds; it also ends a wait for a lost message.
PATIENCE = 60.0

#: The sides are forked from a clean process, in which no peer has run.
CONTEXT: Any = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["bench.stage", "shmq"])


class Failed(Exception):
    """A side raised, died or did not end: nothing was measured."""


class Stage:
    """A side's connection to the others."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def meet(self) -> None:
        """Return once every side has called this as often as the caller."""
        self._pipe.send(("meet", None))
        self._pipe.recv()


class Side:
    """A function, its arguments, and the core that it runs on; None: any core."""

    def __init__(self, act: Callable[..., Any], *arguments: Any, core: int | None) -> None:
        self.act = act
        self.arguments = arguments
        self.core = core


def together(sides: Sequence[Side], patience: float = PATIENCE) -> list[Any]:
    """Run the sides at the same time; returns their results, in order.

    Raises :class:`Failed` with the side's own trace if one raises, and if they do not all end
    within ``patience`` seconds. No side outlives this call.
    """
    pipes: list[Connection] = []
    processes: list[Any] = []
    finished = False
    try:
        for side in sides:
            here, there = CONTEXT.Pipe()
            pipes.append(here)
            process = CONTEXT.Process(target=_run, args=(there, side), daemon=True)
            process.start()
            processes.append(process)
            there.close()
        values = _direct(pipes, patience)
        finished = True
        return values
    finally:
        for process in processes:
            if finished:
                process.join(PATIENCE)
            process.kill()
            process.join()
            process.close()
        for pipe in pipes:
            pipe.close()


def _direct(pipes: list[Connection], patience: float) -> list[Any]:
    """Let the sides meet until all are done; returns their results."""
    end = time.monotonic() + patience
    values: dict[Connection, Any] = {}
    waiting: set[Connection] = set()
    while len(values) < len(pipes):
        listening = [pipe for pipe in pipes if pipe not in values and pipe not in waiting]
        if not listening:
            for pipe in waiting:
                pipe.send(None)
            waiting.clear()
            continue
        spoken = wait(listening, end - time.monotonic())
        if not spoken:
            silent = [pipes.index(pipe) for pipe in listening]
            raise Failed(f"sides {silent} did not go on within {patience} s: messages were lost")
        for pipe in listening:
            if pipe in spoken:
                _hear(pipe, pipes.index(pipe), values, waiting)
    return [values[pipe] for pipe in pipes]


def _hear(
    pipe: Connection, place: int, values: dict[Connection, Any], waiting: set[Connection]
) -> None:
    try:
        said, value = pipe.recv()
    except EOFError:
        raise Failed(f"side {place} died") from None
    if said == "failed":
        raise Failed(value)
    if said == "meet":
        waiting.add(pipe)
    else:
        values[pipe] = value


def _run(pipe: Connection, side: Side) -> None:
    if side.core is not None:
        pin(side.core)
    gc.disable()
    try:
        value = side.act(Stage(pipe), *side.arguments)
    except BaseException:  # noqa: BLE001
        pipe.send(("failed", traceback.format_exc()))
    else:
        pipe.send(("done", value))
