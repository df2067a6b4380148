"""Checks what shmq needs of the machine and of its process."""

from __future__ import annotations

import dataclasses
import os
import platform
import resource
import sys
from collections.abc import Iterator

import psutil

from shmq.api.names import SHM

#: The oldest glibc that the wheels are built for.
_GLIBC = (2, 28)

#: A new queue takes some tens of KiB; with less than this not even a few can be created.
_LEAST_FREE = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One fact about the machine."""

    name: str
    value: str | int
    #: The problem and what to do; None if there is none.
    problem: str | None = None


def conditions() -> list[Condition]:
    """Versions, the space in /dev/shm, and the limits that matter for queues."""
    return [*_check_versions(), *_check_room(), *_check_limits()]


def _check_versions() -> Iterator[Condition]:
    yield Condition(name="python", value=platform.python_version(), problem=_check_gil())
    yield Condition(name="kernel", value=f"{platform.system()} {platform.release()}")
    library, version = platform.libc_ver()
    yield Condition(
        name="libc", value=f"{library} {version}".strip(), problem=_check_libc(library, version)
    )
    yield Condition(name="machine", value=platform.machine())
    yield Condition(name="processors", value=len(os.sched_getaffinity(0)))


def _check_gil() -> str | None:
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    return None if enabled() else "threads that share a handle need the GIL: run with it"


def _check_libc(library: str, version: str) -> str | None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if library != "glibc" or numbers >= _GLIBC:
        return None
    return f"glibc {_GLIBC[0]}.{_GLIBC[1]} or newer is needed"


def _check_room() -> Iterator[Condition]:
    try:
        space = os.statvfs(SHM)
    except OSError as error:
        problem = f"shared memory is missing: {error.strerror}; mount a tmpfs on {SHM}"
        yield Condition(name=f"{SHM}", value="none", problem=problem)
        return
    kind = _find_file_system_type()
    other = None if kind == "tmpfs" else f"{SHM} is not tmpfs: queues are slow there, or fail"
    yield Condition(name=f"{SHM} file system", value=kind, problem=other)
    yield Condition(name=f"{SHM} bytes", value=space.f_blocks * space.f_frsize)
    free = space.f_bavail * space.f_frsize
    full = f"less than {_LEAST_FREE} bytes: purge or delete queues, or give it more room"
    yield Condition(
        name=f"{SHM} bytes free", value=free, problem=full if free < _LEAST_FREE else None
    )
    none = f"no file can be made in {SHM}: delete queues, or mount it with more inodes"
    lacks = space.f_files and not space.f_favail
    yield Condition(name=f"{SHM} files free", value=space.f_favail, problem=none if lacks else None)


def _find_file_system_type() -> str:
    """The type of the file system on /dev/shm; the last mount covers the others."""
    mounts = [
        part.fstype for part in psutil.disk_partitions(all=True) if part.mountpoint == str(SHM)
    ]
    return mounts[-1] if mounts else "unknown"


def _check_limits() -> Iterator[Condition]:
    """The limits of a process: getrlimit(2)."""
    for name, number, meaning in (
        ("open files", resource.RLIMIT_NOFILE, "one for each handle of a queue"),
        ("file size", resource.RLIMIT_FSIZE, "bounds the segment of a new queue"),
        ("address space", resource.RLIMIT_AS, "bounds the segments that can be mapped"),
        ("core file size", resource.RLIMIT_CORE, "a process lives until its core is written"),
    ):
        soft, _ = resource.getrlimit(number)
        value: str | int = "unlimited" if soft == resource.RLIM_INFINITY else soft
        yield Condition(name=f"limit: {name} ({meaning})", value=value)
