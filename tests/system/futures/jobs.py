"""Functions that the tests execute in workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

INITIALIZED: list[object] = []


def square(x: int) -> int:
    return x * x


def add(x: int, y: int = 0, *, z: int = 0) -> int:
    return x + y + z


def echo(x: Any) -> Any:
    return x


def increment(array: Any) -> Any:
    array += 1
    return array


def die(x: int, at: int = 1) -> int:
    if x == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def leave(code: int) -> None:
    os._exit(code)


def note_and_die(path: Path, times: int) -> int:
    """Die the first ``times`` times; return how many times it was called."""
    calls = note(path)
    if calls <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return calls


def note(path: Path, text: str = "x") -> int:
    with path.open("a") as file:
        file.write(f"{text}\n")
    return len(path.read_text().splitlines())


def note_and_wait(path: Path) -> None:
    """Note the process, and wait; a process that notes itself later returns at once."""
    if note(path, str(os.getpid())) == 1:
        time.sleep(60)


def wait_for(path: Path) -> int:
    """Note the start in PATH.pid, wait until the path exists; return the process."""
    Path(f"{path}.pid").write_text(str(os.getpid()))
    while not path.exists():
        time.sleep(0.005)
    return os.getpid()


def pause(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def fail(text: str) -> None:
    raise ValueError(text)


class Unpicklable(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Unloadable(Exception):
    """Can be pickled; unpickling it raises TypeError."""

    def __init__(self, text: str, more: str) -> None:
        super().__init__(text + more)


class Unprintable(Exception):
    def __init__(self) -> None:
        super().__init__(threading.Lock())

    def __str__(self) -> str:
        raise RuntimeError


def raise_unpicklable() -> None:
    raise Unpicklable("the text")


def raise_unloadable() -> None:
    raise Unloadable("the ", "text")


def raise_unprintable() -> None:
    raise Unprintable


def make_lock() -> Any:
    return threading.Lock()


def make_bytes(size: int) -> bytes:
    return bytes(size)


def initialize(value: object) -> None:
    INITIALIZED.append(value)


def initialized() -> list[object]:
    return INITIALIZED


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
