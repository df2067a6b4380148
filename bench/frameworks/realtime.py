"""A contestant: a real-time framework that sends to the clients of other processes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import psutil

from bench.compiled import ROOT
from bench.ending import unbroken
from bench.frameworks.ledger import PIPE, Ledger
from bench.frameworks.realtime_app import GROUP, MEMBERS, PROCESSES, layer_at, manager_at
from bench.frameworks.worker import end_process
from bench.machine import now
from bench.row import RATE, SECONDS, Contestant, Turn
from bench.scratch import delete_all, unique_name
from bench.tcp.server import HOST, running
from bench.tcp.servers import Redis

RealtimeFramework = Literal["channels", "socketio"]

#: How many messages may be on their way: a layer of Channels drops the 101st of a channel.
_WINDOW: Final = 50
#: What each framework needs, on shmq and on Redis.
_MODULES: Final[dict[RealtimeFramework, tuple[str, str]]] = {
    "channels": ("channels", "channels_redis"),
    "socketio": ("socketio", "redis"),
}


class Realtime(Contestant):
    """Messages from this process to the clients of others, by shmq or Redis."""

    least, most = 200, 20_000

    def __init__(self, framework: RealtimeFramework, label: Literal["shmq", "Redis"]) -> None:
        self.label = label
        self.role = "shmq" if label == "shmq" else "peer"
        self._framework: RealtimeFramework = framework
        self._count = PROCESSES if framework == "channels" else 1
        self._next = 1

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        for module in _MODULES[self._framework][: 1 if self.role == "shmq" else 2]:
            if importlib.util.find_spec(module) is None:
                return f"no module {module}: pip install '.[bench,channels,socketio]'"
        return None if self.role == "shmq" else Redis.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        tiny = type(self)(self._framework, self.label)  # type: ignore[arg-type]
        tiny.least = tiny.most = 20
        return tiny

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            if self.role == "shmq":
                url = unique_name()
                stack.callback(delete_all, url)
            else:
                url = f"redis://{HOST}:{running(Redis).port}/0"
            ledger = Ledger(folder / "ledger")
            stack.callback(ledger.close)
            base = random.getrandbits(48)  # no message has the number of one of another row
            for index in range(self._count):
                stack.enter_context(self._started(url, (base, index, self._count), folder))
            ledger.await_all(range(base, base + self._count))
            runner = stack.enter_context(asyncio.Runner())
            send = self._sender(url)
            yield lambda amount: self._rate(runner, send, ledger, base, amount)

    @contextlib.contextmanager
    def _started(self, url: str, numbers: tuple[int, ...], folder: Path) -> Iterator[None]:
        environment = {**os.environ, PIPE: str(folder / "ledger"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "bench.frameworks.realtime_app", self._framework, url]
        with (folder / "log").open("ab") as log, unbroken():
            process = psutil.Popen(
                [*command, *map(str, numbers)],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        try:
            yield
        finally:
            end_process(process)

    def _sender(self, url: str) -> Callable[[int], Awaitable[None]]:
        """A function that sends a message with this number."""
        if self._framework == "channels":
            layer = layer_at(url)
            return lambda number: layer.group_send(GROUP, {"type": "bench", "number": number})
        manager = manager_at(url)
        return lambda number: manager.emit("bench", number)

    def _rate(
        self,
        runner: asyncio.Runner,
        send: Callable[[int], Awaitable[None]],
        ledger: Ledger,
        base: int,
        amount: int,
    ) -> dict[str, float]:
        begun, last = now(), 0

        async def send_all(numbers: range) -> None:
            for number in numbers:
                await send(number)

        end = self._next + amount
        for start in range(self._next, end, _WINDOW):
            numbers = range(start, min(start + _WINDOW, end))
            runner.run(send_all(numbers))
            first, behind = (base + self._count * each for each in (start, numbers.stop))
            last = max(ledger.await_all(range(first, behind)).values())
        self._next = end
        seconds = (last - begun) / 1e9
        members = MEMBERS if self._framework == "channels" else 1
        return {RATE.key: amount * self._count * members / seconds, SECONDS: seconds}
