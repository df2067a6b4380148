"""Who holds a lock: what is said of a process that keeps others waiting."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shmq.errors import LockTimeout

__all__ = ["Holder", "lock_timeout"]

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Holder:
    """A process as /proc has it: ``state`` is "running", "stopped", "frozen" or the like."""

    pid: int
    name: str
    state: str

    @classmethod
    def of(cls, thread: int) -> Holder:
        """The process of that thread, or process, id."""
        status = _read(_PROC / str(thread) / "status")
        if not thread or not status:
            return cls(thread, "?", "gone")
        pid = int(_field(status, "Tgid") or thread)
        state = re.sub(r"^\w \((.*)\)$", r"\1", _field(status, "State"))
        if state not in {"stopped", "zombie"} and _is_frozen(pid):
            state = "frozen"
        return cls(pid, _field(status, "Name"), state)

    @property
    def is_at_work(self) -> bool:
        """Whether it goes on by itself: it has work on a CPU, or waits for one or a disk."""
        return self.state in {"running", "disk sleep"}

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


def lock_timeout(what: str, thread: int, seconds: float) -> LockTimeout:
    """The error of one who has waited so long for ``what``; 0: for nobody who is known."""
    if not thread:
        return LockTimeout(f"{what} could not be locked within {seconds:.2f} s: try again")
    holder = Holder.of(thread)
    return LockTimeout(
        f"{what} is locked by process {holder.pid} ({holder.name}, {holder.state}), for "
        f"{seconds:.2f} s at least: {holder.remedy}",
        holder.pid,
        holder.state,
    )


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*)$", status, re.MULTILINE)
    return found[1] if found else ""


def _is_frozen(pid: int) -> bool:
    """Whether a cgroup that the process is in is frozen, of either version."""
    for line in _read(_PROC / str(pid) / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers and "frozen 1" in _read(_CGROUPS / path[1:] / "cgroup.events"):
            return True
        if controllers == "freezer":
            state = _read(_CGROUPS / "freezer" / path[1:] / "freezer.state")
            return state.strip() in {"FROZEN", "FREEZING"}
    return False
