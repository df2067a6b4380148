"""Handlers for the tests, which do what the messages tell them, and write a journal.

A body is a list: a number and then what is to be done with it, one after the other. The
journal is the file that JOURNAL names; a line is ``WHAT NUMBER PID DELIVERY``.
"""

from __future__ import annotations

import asyncio
import ctypes
import datetime as dt
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import shmq

JOURNAL = Path(os.environ.get("JOURNAL", os.devnull))

#: What holds a handler until the file is there.
GATE = JOURNAL.with_name("gate")


def write(what: str, message: shmq.Message) -> None:
    line = f"{what} {message.body[0]} {os.getpid()} {message.delivery_count}\n"
    descriptor = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def act(message: shmq.Message) -> str:
    write("begin", message)
    for operation in message.body[1:]:
        do(operation, message)
    write("end", message)
    return "not looked at"


def do(operation: str, message: shmq.Message) -> None:
    what, _, value = operation.partition(" ")
    if what != "first":
        OPERATIONS[what](message, value)
    elif message.delivery_count == 1:
        do(value, message)


def wait(*_: object) -> None:
    while not GATE.exists():
        time.sleep(0.002)


def fail(_: shmq.Message, why: str) -> None:
    raise ValueError(why)


def reject(_: shmq.Message, why: str) -> None:
    raise shmq.Reject(why)


def retry(_: shmq.Message, delay: str) -> None:
    raise shmq.Retry(delay=float(delay) if delay else None)


OPERATIONS: dict[str, Callable[[shmq.Message, str], None]] = {
    "exit": lambda _, code: os._exit(int(code)),
    "raise": fail,
    "reject": reject,
    "retry": retry,
    "settle": lambda message, how: getattr(message, how)(),
    "signal": lambda _, name: os.kill(os.getpid(), signal.Signals[name]),
    "stuck": lambda *_: ctypes.PyDLL(None).sleep(3600),  # with the interpreter's lock
    "sleep": lambda _, seconds: time.sleep(float(seconds)),
    "sys.exit": lambda _, code: sys.exit(int(code)),
    "wait": wait,
}


async def act_in_a_loop(message: shmq.Message) -> None:
    write("begin", message)
    await asyncio.sleep(0.001)
    for operation in message.body[1:]:
        do(operation, message)
    write("end", message)


@shmq.worker("declared", processes=2, mode="keyed", idle_timeout=0.2)
def declared(message: shmq.Message) -> None:
    """What a declared handler says of itself."""
    act(message)


class Acting:
    def act(self, message: shmq.Message) -> None:
        act(message)


acting = Acting()
number = 17


@shmq.worker("jobs", every=1)
def ticking(message: shmq.Message) -> None:
    """Write the second of the run and, in place of the pid, the number of its message."""
    assert message.body is None
    at = dt.datetime.fromisoformat(message.headers["scheduled_at"])
    line = f"run {round(at.timestamp())} {message.sequence} {message.delivery_count}\n"
    with JOURNAL.open("a") as journal:
        journal.write(line)
