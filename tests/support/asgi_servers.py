"""Servers of an ASGI application, each a process with a port of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.processes import ROOT, environment
from tests.support.server import fixed_port

Process = subprocess.Popen[bytes]


@contextlib.contextmanager
def asgi_servers(
    commands: Sequence[Callable[[int], list[str]]], target: str, folder: Path
) -> Iterator[list[tuple[Process, int]]]:
    """The processes of these modules, with their ports, which the commands are made of.

    ``target`` is in their environment as CHAT_TARGET; their output goes into files of the folder.
    """
    started = []
    with contextlib.ExitStack() as stack:
        for number, command in enumerate(commands):
            port = fixed_port()
            output = stack.enter_context((folder / f"{number}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", *command(port)],
                cwd=ROOT,
                env=environment(CHAT_TARGET=target),
                stdout=output,
                stderr=output,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append((process, port))
        yield started
