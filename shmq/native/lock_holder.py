"""The holder of a lock, described for the error of a process that waited for it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from shmq.errors import LockTimeout
from shmq.native import _clock as time

_T = TypeVar("_T")

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")

#: How long an operation without a timeout waits for a file's lock, in seconds: if the holder is
#: stopped, and otherwise. Work under such a lock writes files.
_AT_ONCE: Final = 0.1
_PATIENCE: Final = 5.0
#: Seconds between two looks at the holder.
_LOOK_AGAIN: Final = 0.5
#: The first pause between two tries, and the longest.
_PAUSE: Final = 0.0002
_MOST_PAUSE: Final = 0.01


class Holder(NamedTuple):
    """A process as /proc shows it: ``state`` is "running", "stopped", "frozen" or the like."""

    pid: int
    name: str
    state: str

    @classmethod
    def of(cls, thread: int) -> Holder:
        """The process of this thread id or process id."""
        status = _read(_PROC / str(thread) / "status")
        if not thread or not status:
            return cls(thread, "?", "gone")
        pid = int(_read_field(status, "Tgid") or thread)
        state = re.sub(r"^\w \((.*)\)$", r"\1", _read_field(status, "State"))
        if state not in {"stopped", "zombie"} and _is_frozen(pid):
            state = "frozen"
        return cls(pid, _read_field(status, "Name"), state)

    @property
    def stands_still(self) -> bool:
        """Whether it stays stopped until someone acts on it."""
        return self.state in {"stopped", "tracing stop", "frozen"}

    @property
    def remedy(self) -> str:
        """What to do about it."""
        if self.state == "stopped":
            return f"continue it (kill -CONT {self.pid}) or kill it"
        if self.state == "frozen":
            return "thaw its cgroup, or kill it"
        if self.state == "tracing stop":
            return "let its debugger go on, or kill it"
        return "try again, or kill it if it does not go on"


def lock_timeout(
    what: str, pid: int, seconds: float, number: int = 0, elsewhere: str = ""
) -> LockTimeout:
    """The error of a wait of ``seconds`` for ``what``.

    ``pid``: the holder's; 0: it has none here. Then it is the process of that ``number`` in the
    namespace, which is called ``elsewhere`` if more is known of it. Without a number it is unknown.
    """
    if not pid and number:
        owner = elsewhere or f"process number {number}, which has no PID in this PID namespace"
        return LockTimeout(
            f"{what} is locked: held by {owner}, for {seconds:.2f} s at least; try again, or end "
            f"it if it does not go on"
        )
    if not pid:
        return LockTimeout(
            f"{what} was locked for {seconds:.2f} s, it is not known by whom: try again"
        )
    holder = Holder.of(pid)
    return LockTimeout(
        f"{what} is locked: held by PID {holder.pid} ({holder.state}), {holder.name}, for "
        f"{seconds:.2f} s at least; {holder.remedy}",
        holder.pid,
        holder.state,
    )


def take_file_lock(
    attempt: Callable[[], bool], what: str, locker: Callable[[], int], until: float = 0.0
) -> None:
    """Take a file's lock: call ``attempt()`` until it returns true.

    ``locker()`` returns the process that has the lock, 0 if unknown. ``until`` is the operation's
    deadline by time.monotonic(), or math.inf; a lock is waited for as without a timeout if that
    is longer, because no caller can know that it is free. Raises :class:`~shmq.LockTimeout`.
    Signals are handled between two tries.
    """
    begin = time.monotonic()
    pause, look_at = _PAUSE, begin + _AT_ONCE
    while not attempt():
        now = time.monotonic()
        if now >= look_at:
            look_at = now + _LOOK_AGAIN
            end = max(begin + _PATIENCE, until)
            holder = locker()
            still = now >= until and holder and Holder.of(holder).stands_still
            if now >= end or still:
                raise lock_timeout(what, holder, now - begin)
            look_at = min(look_at, end)
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


def until_locked(
    deed: Callable[[], _T],
    until: float | None,
    waiting: Callable[[LockTimeout], object] | None = None,
) -> _T:
    """Return what ``deed()``, an operation without a timeout, returns, waiting for its locks.

    It is repeated while it raises :class:`~shmq.LockTimeout`, after which nothing has changed;
    ``until`` is the deadline by time.monotonic(); None: no limit. ``waiting`` is called with the
    error once it is repeated, a single time.
    """
    while True:
        try:
            return deed()
        except LockTimeout as error:
            if until is not None and time.monotonic() >= until:
                raise
            if waiting is not None:
                waiting(error)
                waiting = None


def locker_of(fd: int) -> int:
    """The process that has the file ``fd`` locked for itself; 0 if there is none or it is unknown.

    The lock is one of flock(2), or one of an open file description (F_OFD_SETLK). Shared locks,
    which other processes may have on the file beside it, are passed over.
    """
    status = os.fstat(fd)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in _read(_PROC / "locks").splitlines():
        words = line.split()
        if words[3:4] != ["WRITE"] or words[5:6] != [file]:
            continue
        if words[1] == "FLOCK":
            return max(int(words[4]), 0)
        if words[1] == "OFDLCK":
            return _find_opener_with_lock(file)
    return 0


def _find_opener_with_lock(file: str) -> int:
    """The process with the descriptor that holds the lock, where /proc/locks does not name it."""
    own = os.getpid()
    for process in _PROC.glob("[0-9]*"):
        if int(process.name) == own:
            continue
        with contextlib.suppress(OSError):
            for descriptor in (process / "fdinfo").iterdir():
                if f"OFDLCK ADVISORY  WRITE -1 {file} " in _read(descriptor):
                    return int(process.name)
    return 0


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _read_field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*)$", status, re.MULTILINE)
    return found[1] if found else ""


def _is_frozen(pid: int) -> bool:
    """Whether the process is in a frozen cgroup, of either version."""
    for line in _read(_PROC / str(pid) / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers and "frozen 1" in _read(_CGROUPS / path[1:] / "cgroup.events"):
            return True
        if controllers == "freezer":
            state = _read(_CGROUPS / "freezer" / path[1:] / "freezer.state")
            return state.strip() in {"FROZEN", "FREEZING"}
    return False
