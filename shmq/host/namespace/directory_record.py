"""What a host remembers of a namespace across reboots: its data directory, and who writes it.

Both files are in the state directory: ``SHMQ_STATE_DIR``, or else ``/var/lib/shmq`` for root, and
for other users ``shmq`` in ``XDG_STATE_HOME``, by default ``~/.local/state``. That of a group of
users is ``SHMQ_STATE_DIR/@GROUP``, or else ``/var/lib/shmq.GROUP``. No namespace's name has an
``@``.

``NAMESPACE@directory``
    a JSON object with the path ``data_dir``, and with ``memories``, the numbers of the memory that
    its files were last joined to and of those before: see `shmq.disk.storage.history`.
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

from shmq.api.names import group_of, name_in_group
from shmq.disk.storage.disk import Disk, read_whole, replace_file
from shmq.disk.storage.file_lock import is_locked, lock_file
from shmq.errors import InvalidOption
from shmq.host.namespace.folder import shared_gid
from shmq.native.directories import make_directory

_SYSTEM: Final = Path("/var/lib")


class DirectoryRecord(NamedTuple):
    """The data directory that the host remembers for a namespace."""

    data_dir: Path
    memories: tuple[int, ...]


def state_directory(namespace: str) -> Path:
    """The state directory of the namespace, which need not exist.

    Raises :class:`~shmq.InvalidOption` for a user without a home.
    """
    named, group = os.environ.get("SHMQ_STATE_DIR"), group_of(namespace)
    if named:
        return Path(named).absolute() / (f"@{group}" if group else "")
    return _state_home() / "shmq" if group is None else _SYSTEM / f"shmq.{group}"


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
        disk, name = Disk(state_directory(namespace)), _record_name(namespace)
        members: dict[str, Any] = json.loads(read_whole(disk, name))
        return DirectoryRecord(
            Path(members["data_dir"]), tuple(int(number) for number in members["memories"])
        )
    except (OSError, ValueError, LookupError, TypeError):  # InvalidOption is a ValueError
        return None


def write_record(namespace: str, record: DirectoryRecord) -> None:
    """Remember that, durably. Raises OSError and :class:`~shmq.InvalidOption`."""
    if read_record(namespace) == record:
        return
    path = record_path(namespace)
    make_directory(path.parent, shared_gid(namespace))
    members = {"data_dir": os.fspath(record.data_dir), "memories": record.memories}
    content = json.dumps(members).encode() + b"\n"
    replace_file(Disk(path.parent), path.name, f".{path.name}.tmp", [content])


def forget_record(namespace: str) -> None:
    """Remove what the host remembers, for the writer of a namespace without durable data."""
    with contextlib.suppress(OSError, InvalidOption):
        record_path(namespace).unlink(missing_ok=True)
        lock_path(namespace).unlink(missing_ok=True)


def record_path(namespace: str) -> Path:
    """The file of what is remembered. Raises as `state_directory`."""
    return state_directory(namespace) / _record_name(namespace)


def _record_name(namespace: str) -> str:
    return f"{name_in_group(namespace)}@directory"


def lock_namespace(namespace: str) -> int:
    """Be the namespace's only writer until the descriptor that this returns is closed.

    Raises BlockingIOError if there is another, OSError and :class:`~shmq.InvalidOption`.
    """
    path = lock_path(namespace)
    make_directory(path.parent, shared_gid(namespace))
    return lock_file(path)


def is_namespace_locked(namespace: str) -> bool:
    """Whether a process is the namespace's writer, as far as can be seen."""
    try:
        return is_locked(lock_path(namespace))
    except InvalidOption:
        return False


def lock_path(namespace: str) -> Path:
    """The file that the namespace's writer holds locked. Raises as `state_directory`."""
    return state_directory(namespace) / f"{name_in_group(namespace)}@lock"
