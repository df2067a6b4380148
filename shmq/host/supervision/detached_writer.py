"""The persistence writer as a detached process: it starts it, and detaches it.

`launch` runs ``shmq persist --detach``, which calls `detach`: it leaves the session and the
terminal, and its parent returns once the queues are recovered.
"""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sys
from pathlib import Path
from typing import Final

from shmq.disk.storage.disk import Disk
from shmq.errors import InvalidOption, ShmqError
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file

#: How long nothing durable may be in use before a writer that was started so ends, in seconds.
IDLE: Final = 60.0

_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*t?(\.exe)?\Z")
#: The folder that has this package.
_ROOT: Final = str(Path(__file__).resolve().parents[2])


def chosen_idle() -> float:
    """``SHMQ_AUTOSTART_IDLE`` in seconds, else `IDLE`. Raises :class:`~shmq.InvalidOption`."""
    text = os.environ.get("SHMQ_AUTOSTART_IDLE")
    if not text:
        return IDLE
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds < 1e9:
        raise InvalidOption(f"SHMQ_AUTOSTART_IDLE={text!r} must be a number of seconds above 0")
    return seconds


def launch(namespace: str, disk: Disk, timeout: float) -> None:
    """Start a writer, and return once it has recovered the directory.

    A writer that is not ready in time continues anyway. Raises :class:`~shmq.ShmqError` with the
    writer's error, and TimeoutError.
    """
    command = [
        *_find_interpreter(), "-m", "shmq", "-n", namespace, "persist", "--data-dir",
        str(disk.directory), "--idle", f"{chosen_idle():g}s", "--detach",
    ]  # fmt: skip
    try:
        disk.make()  # fails early, before a process is started
    except OSError as error:
        raise ShmqError(
            f"data_dir={str(disk.directory)!r} cannot be used: {error.strerror or error}"
        ) from error
    try:
        reserve_standard()
        done = subprocess.run(
            command,
            cwd="/",
            env=_make_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    except OSError as error:
        raise ShmqError(f"{sys.executable} cannot be run: {error.strerror or error}") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = lines[-1].removeprefix("shmq: ") if lines else f"it ended with {done.returncode}"
        raise ShmqError(said)


def _find_interpreter() -> list[str]:
    """The command of the interpreter. Raises ShmqError in a program that embeds Python."""
    if getattr(sys, "frozen", False) or not _PYTHON.match(Path(sys.executable or "none").name):
        raise ShmqError(f"this program ({sys.executable!r}) is not a Python that could run it")
    return [sys.executable, "-P"]  # imports nothing from the current directory


def _make_environment() -> dict[str, str]:
    """This process's environment, with the package's path if Python would not find it.

    Without ``SHMQ_GROUP``: the name of the namespace has its group, if there is one.
    """
    own = {name: value for name, value in os.environ.items() if name != "SHMQ_GROUP"}
    known = [*site.getsitepackages(), site.getusersitepackages()]
    if _ROOT in known:
        return own
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), _ROOT]
    return {**own, "PYTHONPATH": os.pathsep.join(path)}


#: A log that is longer than this, in bytes, is rotated at the next start.
_LONG: Final = 1 << 20
_MOST: Final = 1 << 16


class Parent:
    """The parent process, which waits until this one has started."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def tell(self, problem: str = "") -> None:
        """Let the parent end; with a ``problem``, as an error. Does it once."""
        if self._pipe >= 0:
            pipe, self._pipe = self._pipe, -1
            try:
                os.write(pipe, (problem or "\0").encode("utf-8", "surrogateescape")[:_MOST])
            except BrokenPipeError:
                pass  # the parent has already ended
            finally:
                os.close(pipe)


def detach(log: Path) -> Parent:
    """Continue in a forked child, with ``log`` as stderr; the parent ends when the child says so.

    For a process with one thread and without locks. The child has its own session and no
    terminal, and the parent does not wait for its end. In the parent this raises SystemExit, or
    :class:`~shmq.ShmqError` with the problem. Raises OSError.
    """
    file = _open_log(log)
    reserve_standard()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(writing)
        os.close(file)
        _wait_for_child(reading, log)
    os.close(reading)
    os.setsid()
    nothing = open_file(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard, source in ((0, nothing), (1, nothing), (2, file)):
        os.dup2(source, standard)
    os.close(nothing)
    os.close(file)
    os.chdir("/")
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    return Parent(writing)


def _open_log(log: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    file = open_file(log, flags)
    if os.fstat(file).st_size > _LONG:
        os.close(file)
        log.rename(f"{log}.old")
        file = open_file(log, flags)
    return file


def _wait_for_child(pipe: int, log: Path) -> None:
    """In the parent: wait for the child, then raise SystemExit or ShmqError."""
    said = b""
    while more := os.read(pipe, _MOST):
        said += more
    if said == b"\0":
        raise SystemExit(0)
    raise ShmqError(said.decode("utf-8", "surrogateescape") or f"it has ended: {log} says more")
