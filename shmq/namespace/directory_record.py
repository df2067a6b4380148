"""What a host remembers of a namespace across reboots: its data directory, and who writes it.

Both files are in the state directory: ``SHMQ_STATE_DIR``, or else ``/var/lib/shmq`` for root, and
for other users ``shmq`` in ``XDG_STATE_HOME``, by default ``~/.local/state``. No namespace's name
has an ``@``.

``NAMESPACE@directory``
    a JSON object with the path ``data_dir``, and with ``memories``, the numbers of the memory that
    its files were last joined to and of those before: see `shmq.storage.history`.
``NAMESPACE@lock``
    the writer of the namespace's durable queues holds flock(2) on it. So there is one, also after
    the namespace's files in /dev/shm were removed while it runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from shmq.errors import InvalidOption
from shmq.native.directories import make_directory
from shmq.storage.disk import Disk, read_whole, replace_file
from shmq.storage.file_lock import is_locked, lock_file

__all__ = [
    "DirectoryRecord",
    "forget_record",
    "is_namespace_locked",
    "lock_namespace",
    "read_record",
    "state_directory",
    "write_record",
]

_SYSTEM: Final = Path("/var/lib")


class DirectoryRecord(NamedTuple):
    """The data directory that the host remembers for a namespace."""

    data_dir: Path
    memories: tuple[int, ...]


def state_directory() -> Path:
    """The state directory, which need not exist.

    Raises :class:`~shmq.InvalidOption` for a user without a home.
    """
    named = os.environ.get("SHMQ_STATE_DIR")
    if named:
        return Path(named).absolute()
    return _state_home() / "shmq"


def _state_home() -> Path:
    if os.geteuid() == 0:
        return _SYSTEM
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():  # the XDG specification says to ignore a relative path
        return named
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise InvalidOption(
            "this user has no home directory to keep queues in: name a directory with "
            "data_dir, --data-dir or SHMQ_DATA_DIR, and one to remember it in with SHMQ_STATE_DIR"
        ) from error


def read_record(namespace: str) -> DirectoryRecord | None:
    """What is remembered; None: nothing, or it cannot be read."""
    try:
        members: dict[str, Any] = json.loads(read_whole(Disk(state_directory()), _file(namespace)))
        return DirectoryRecord(
            Path(members["data_dir"]), tuple(int(number) for number in members["memories"])
        )
    except (OSError, ValueError, LookupError, TypeError):  # InvalidOption is a ValueError
        return None


def write_record(namespace: str, record: DirectoryRecord) -> None:
    """Remember that, durably. Raises OSError and :class:`~shmq.InvalidOption`."""
    if read_record(namespace) == record:
        return
    disk = Disk(state_directory())
    make_directory(disk.directory)
    members = {"data_dir": os.fspath(record.data_dir), "memories": record.memories}
    file = _file(namespace)
    replace_file(disk, file, f".{file}.tmp", [json.dumps(members).encode() + b"\n"])


def forget_record(namespace: str) -> None:
    """Remove what the host remembers, for the writer of a namespace without durable data."""
    with contextlib.suppress(OSError, InvalidOption):
        directory = state_directory()
        (directory / _file(namespace)).unlink(missing_ok=True)
        (directory / _lock(namespace)).unlink(missing_ok=True)


def _file(namespace: str) -> str:
    return f"{namespace}@directory"


def lock_namespace(namespace: str) -> int:
    """Be the namespace's only writer until the descriptor that this returns is closed.

    Raises BlockingIOError if there is another, OSError and :class:`~shmq.InvalidOption`.
    """
    directory = state_directory()
    make_directory(directory)
    return lock_file(directory / _lock(namespace))


def is_namespace_locked(namespace: str) -> bool:
    """Whether a process is the namespace's writer, as far as can be seen."""
    try:
        return is_locked(state_directory() / _lock(namespace))
    except InvalidOption:
        return False


def _lock(namespace: str) -> str:
    return f"{namespace}@lock"
