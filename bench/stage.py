"""Runs processes together, each on its core, turn after turn, and collects their results.

A side is a function ``act(stage, *arguments)`` in its own process. ``for amount in
stage.turns()`` waits for the turns; ``stage.tell(value)`` is the result of the current one. If a
side raises, all sides end and the measurement raises the error.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from bench.ending import unbroken
from bench.machine import pin

#: How long the sides may take for a turn, in seconds; it also ends a wait for a lost message.
PATIENCE = 60.0
#: Numbers in a cache line: each side counts its meetings on a line of its own.
LINE = 8
#: How often a side looks for the others before it sleeps, and how many seconds it sleeps.
LOOKS, PAUSE = 20_000, 0.0002

#: The sides are forked from a clean process, in which no peer has run.
CONTEXT: Any = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["bench.stage", "shmq"])


class Failed(Exception):
    """A side raised, died or did not end: nothing was measured."""


class Stage:
    """A side's connection to the others."""

    def __init__(self, pipe: Connection, meetings: Any, place: int, crowded: bool) -> None:
        self._pipe = pipe
        self._meetings = meetings
        self._place = place * LINE
        self._crowded = crowded
        self._value: Any = None

    def meet(self) -> None:
        """Return once every side has called this as often as the caller.

        The sides spin, so that they go on at the same moment; they yield if they share cores,
        and sleep if that takes long.
        """
        meetings, place = self._meetings, self._place
        count = meetings[place] + 1
        meetings[place] = count
        looks = 0
        for other in range(0, len(meetings), LINE):
            while meetings[other] < count:
                looks += 1
                if looks > LOOKS:
                    time.sleep(PAUSE)
                elif self._crowded:
                    os.sched_yield()

    def turns(self) -> Iterator[int]:
        """The amount of work of each turn, until there are no more turns."""
        while True:
            gc.collect(0)
            self._pipe.send(("ready", self._value))
            amount = self._pipe.recv()
            if amount is None:
                return
            yield amount

    def tell(self, value: Any) -> None:
        """Let the measurement have this as the side's result of the current turn."""
        self._value = value


class Side:
    """A function, its arguments, and the core that it runs on; None: any core."""

    def __init__(self, act: Callable[..., Any], *arguments: Any, core: int | None) -> None:
        self.act = act
        self.arguments = arguments
        self.core = core


class Cast:
    """The processes of the sides. A context manager: no side outlives its block.

    At the block's end the sides are told that there are no more turns, and must end well. All
    raise :class:`Failed` with the side's own trace if one raises, and if they do not all go on
    within ``patience`` seconds.
    """

    def __init__(self, sides: Sequence[Side], patience: float = PATIENCE) -> None:
        self._sides = sides
        self._patience = patience
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._meetings: Any = None

    def turn(self, amount: int) -> list[Any]:
        """Let every side play a turn; their results, in order."""
        for pipe in self._pipes:
            pipe.send(amount)
        return self._heard("ready")

    def end(self) -> list[Any]:
        """Tell the sides that there are no more turns; what their functions returned."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # it has returned
                pipe.send(None)
        return self._heard("done")

    def __enter__(self) -> Self:
        try:
            self._begin()
            self._heard("ready")
        except BaseException:
            self._clear(0)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = False
        try:
            if kind is None:
                self.end()
                ended = True
        finally:
            self._clear(PATIENCE if ended else 0)

    def _begin(self) -> None:
        # Kept: the memory of an array that is collected here is given to the next one.
        self._meetings = CONTEXT.RawArray(ctypes.c_uint64, LINE * len(self._sides))
        alone = {side.core for side in self._sides if side.core is not None}
        crowded = len(alone) < len(self._sides)
        for place, side in enumerate(self._sides):
            here, there = CONTEXT.Pipe()
            self._pipes.append(here)
            given = there, self._meetings, place, crowded, side
            process = CONTEXT.Process(target=_run, args=given, daemon=True)
            with unbroken():
                process.start()
                self._processes.append(process)
            there.close()

    def _heard(self, word: str) -> list[Any]:
        """The value that each side said with that word."""
        end = time.monotonic() + self._patience
        values: dict[Connection, Any] = {}
        while len(values) < len(self._pipes):
            listening = [pipe for pipe in self._pipes if pipe not in values]
            spoken = wait(listening, end - time.monotonic())
            if not spoken:
                silent = [self._pipes.index(pipe) for pipe in listening]
                raise Failed(
                    f"sides {silent} did not go on within {self._patience} s: messages were lost"
                )
            for pipe in listening:
                if pipe in spoken:
                    values[pipe] = _hear(pipe, self._pipes.index(pipe), word)
        return [values[pipe] for pipe in self._pipes]

    def _clear(self, patience: float) -> None:
        for process in self._processes:
            process.join(patience)
            process.kill()
            process.join()
            process.close()
        for pipe in self._pipes:
            pipe.close()


def _hear(pipe: Connection, place: int, word: str) -> Any:
    try:
        said, value = pipe.recv()
    except EOFError:
        raise Failed(f"side {place} died") from None
    if said == "failed":
        raise Failed(value)
    if said != word:
        raise Failed(f"side {place} is {said} where it should be {word}")
    return value


def together(sides: Sequence[Side], patience: float = PATIENCE) -> list[Any]:
    """Run sides without turns at the same time; what they returned, in order."""
    cast = Cast(sides, patience)
    ended = False
    try:
        cast._begin()
        found = cast._heard("done")
        ended = True
    finally:
        cast._clear(PATIENCE if ended else 0)
    return found


def _run(pipe: Connection, meetings: Any, place: int, crowded: bool, side: Side) -> None:
    if side.core is not None:
        pin(side.core)
    gc.disable()
    try:
        value = side.act(Stage(pipe, meetings, place, crowded), *side.arguments)
    except BaseException:  # noqa: BLE001
        pipe.send(("failed", traceback.format_exc()))
    else:
        pipe.send(("done", value))
