"""The file of contexts: servers and namespaces under names, with tokens."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shmq.api.names import check_name
from shmq.errors import ShmqError
from shmq.native.lock_holder import locker_of, take_file_lock

__all__ = ["Context", "Contexts", "ContextsError", "path", "read", "rewriting"]

_VERSION: Final = 1


class ContextsError(ShmqError):
    """The file of contexts cannot be used, or has no such context."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A server, or a namespace of this host."""

    url: str | None = None
    namespace: str | None = None
    #: The token for the server. No repr shows it.
    token: str | None = dataclasses.field(default=None, repr=False)
    #: Files for TLS, as absolute paths: the trusted CAs, and this client's certificate and key.
    cafile: str | None = None
    cert: str | None = None
    key: str | None = None

    def as_dict(self) -> dict[str, str]:
        """The fields that are set, with the token."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(slots=True)
class Contexts:
    """All contexts by name, and which of them is the current one."""

    current: str | None = None
    known: dict[str, Context] = dataclasses.field(default_factory=dict)

    def get(self, name: str) -> Context:
        """The context of that name. Raises :class:`ContextsError` if there is none."""
        try:
            return self.known[name]
        except KeyError:
            names = ", ".join(sorted(self.known)) or "none"
            raise ContextsError(
                f"there is no context {name!r} in {path()} (there are: {names}): "
                f"make it with shmq context add {name}"
            ) from None


def path() -> Path:
    """The file of contexts: ``shmq/contexts.json`` in XDG_CONFIG_HOME, or in ~/.config."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG base directory specification demands that relative paths are ignored.
    folder = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return folder / "shmq" / "contexts.json"


def read() -> Contexts:
    """The contexts; none if there is no file.

    Raises :class:`ContextsError` for a file that others may read or write, or that is
    none of contexts, and OSError.
    """
    file = path()
    try:
        with file.open("rb") as opened:
            _check_private(file, os.fstat(opened.fileno()))
            _check_folder(file.parent)
            text = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    try:
        return _decoded(json.loads(text))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, ShmqError) as error:
        raise ContextsError(
            f"{file} is no file of contexts of this version ({error}): correct or remove it"
        ) from None


@contextlib.contextmanager
def rewriting() -> Iterator[Contexts]:
    """The contexts, to be changed; they are written if the block ends without an error.

    One process at a time does so; a reader finds the old file or the new one. Raises the
    errors of :func:`read`.
    """
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_folder(file.parent)
        take_file_lock(lambda: _try_lock(folder), f"{file.parent}", lambda: locker_of(folder))
        contexts = read()
        yield contexts
        _replace(file, json.dumps(_encoded(contexts), indent=2) + "\n")
        os.fsync(folder)
    finally:
        os.close(folder)


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(file: Path, text: str) -> None:
    """Write the file anew, mode 0600, in one step."""
    written, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # mode 0600
    try:
        with os.fdopen(written, "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(written)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _check_private(file: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise ContextsError(
            f"{file} belongs to user {found.st_uid}, not to {os.geteuid()}: it holds tokens, "
            f"and is not used"
        )
    if found.st_mode & 0o077:
        raise ContextsError(
            f"{file} has mode {stat.S_IMODE(found.st_mode):04o}, so others may see its tokens: "
            f"it is not used until chmod 600 {file}"
        )


def _check_folder(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ContextsError(
            f"others may change what is in {folder} (owner {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):04o}): it is not used until it is yours, "
            f"and chmod 700 {folder}"
        )


def _encoded(contexts: Contexts) -> dict[str, Any]:
    known = {name: one.as_dict() for name, one in sorted(contexts.known.items())}
    return {"version": _VERSION, "current": contexts.current, "contexts": known}


def _decoded(value: Any) -> Contexts:
    if value["version"] != _VERSION:
        raise ValueError(f"its version is {value['version']!r}, not {_VERSION}")
    known = {}
    for name, fields in value["contexts"].items():
        if not all(isinstance(field, str) for field in fields.values()):
            raise ValueError(f"context {name!r} has a value that is no string")
        if ("url" in fields) is ("namespace" in fields):
            raise ValueError(f"context {name!r} is not either a url or a namespace")
        known[check_name(name, "context")] = Context(**fields)
    current = value["current"]
    if current is not None and current not in known:
        raise ValueError(f"its current context {current!r} is not in it")
    return Contexts(current, known)
