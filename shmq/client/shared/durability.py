"""Ensures that a persistence writer runs for durable data and has recovered what is on disk.

Each process that creates or opens something durable checks whether the namespace has a writer, and
starts one if there is none: :mod:`shmq.host.supervision.detached_writer`. A writer recovers all in
its directory, under the registry lock, before the writer becomes visible: so a process that sees
the writer also sees what it recovered.

Exchanges, bindings and schemas are kept in the data directory of their namespace, if it has one or
a writer of its queues runs. A process that changes them asks the writer to write them, and waits
for that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shmq.api.names import default_namespace
from shmq.disk.storage.erase import erase_stored
from shmq.disk.storage.inventory import LOCK, Kind, refusal_of, stored_names, unrecovered
from shmq.disk.storage.paths import EXCHANGES, SCHEMAS
from shmq.errors import DurabilityWarning, InvalidOption, LockTimeout, NotConfirmed, ShmqError
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import late_imports
from shmq.native import _clock as time

if TYPE_CHECKING:
    from shmq.native._stream import Control

log = logging.getLogger("shmq")

#: How long to wait for a writer to start, in seconds; it reads everything that it recovers.
PATIENCE: Final = 120.0
#: How long waiters for the disk pause after a failed start before they try again, in seconds.
AGAIN: Final = 5.0
#: The same after a successful start.
SOON: Final = 0.5

#: How long to wait for the writer to write definitions, in seconds: usually, and in a process that
#: serves clients.
_WRITTEN: Final = 10.0
_WRITTEN_FOR_CLIENTS: Final = 2.0
#: How long to wait for a missing directory, in seconds: its writer creates it at once.
_MADE: Final = 1.0
_LOOK: Final = 0.01

_OFF: Final = ("0", "no", "off", "false")

_starting = new_lock()
#: When waiters may try the next start, on the monotonic clock, by namespace.
_again_at: dict[str, float] = {}
#: Why the last start failed, by namespace.
_failed: dict[str, str] = {}
_waits = True
_within = threading.local()
#: Directories invisible to this process: the writer is in another mount namespace.
_unseen: set[Path] = set()


def never_wait() -> None:
    """Make this process start writers without waiting for them, because it serves clients."""
    global _waits  # noqa: PLW0603 - one for the process
    _waits = False


@contextlib.contextmanager
def no_starts() -> Iterator[None]:
    """Let this thread neither start a writer nor bring anything back during the block.

    For those who look again and again: a writer that was ended by its user stays ended.
    """
    _within.looking = True
    try:
        yield
    finally:
        _within.looking = False


def _only_looks() -> bool:
    return getattr(_within, "looking", False)


def waits() -> bool:
    """Whether this process waits for a writer that it starts."""
    return _waits


def command_for(namespace: str) -> str:
    """The command with which a user runs the writer of the namespace."""
    named = "" if namespace == default_namespace() else f"SHMQ_NAMESPACE={namespace} "
    return f"{named}shmq persist"


def autostarts() -> bool:
    """Whether a process that needs a writer may start one: unless ``SHMQ_AUTOSTART`` is 0."""
    return os.environ.get("SHMQ_AUTOSTART", "").lower() not in _OFF


def attend(namespace: Namespace) -> str | None:
    """Ensure that a writer runs; None once one runs and has recovered what was on disk.

    Otherwise returns why none runs. The caller must not hold the registry lock. Raises
    :class:`~shmq.LockTimeout` if it takes too long, and at once if this process never waits, and
    :class:`~shmq.WrongDirectory`.
    """
    namespace.processes.check_unlocked()
    _refuse_wrong_directory(namespace)
    end = time.monotonic() + PATIENCE
    if _is_kept(namespace, end):
        return None
    if not autostarts():
        return "SHMQ_AUTOSTART=0"
    if not _waits:
        see_to_it(namespace)
        raise LockTimeout(f"the writer of namespace {namespace.name!r} is being started: try again")
    with _alone(namespace, end):
        if _is_kept(namespace, end):
            return None
        return _launch(namespace, end)


@contextlib.contextmanager
def _alone(namespace: Namespace, end: float) -> Iterator[None]:
    """Be the only thread of all processes that starts a writer. Raises LockTimeout."""
    if not _starting.acquire(timeout=max(0.0, end - time.monotonic())):
        raise LockTimeout(
            f"another thread has been starting a writer for more than {PATIENCE:g} s: try again",
            os.getpid(),
        )
    try:
        with namespace.roles.starting(max(0.0, end - time.monotonic())):
            yield
    finally:
        _starting.release()


def _launch(namespace: Namespace, end: float) -> str | None:
    """Start a writer; if it does not run then, why. Raises LockTimeout."""
    with late_imports:
        from shmq.host.namespace.data_directory import shared_disk  # noqa: PLC0415 - rarely needed
        from shmq.host.supervision.detached_writer import launch  # noqa: PLC0415 - it imports subprocess

    directory = None
    try:
        directory = directory_for(namespace)
        launch(
            namespace.name, shared_disk(namespace.name, directory), max(1.0, end - time.monotonic())
        )
        reason = f"it has ended at once: see {directory / 'writer.log'}"
    except (ShmqError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise LockTimeout(
                f"the writer of namespace {namespace.name!r} has been bringing back what "
                f"{directory} holds for more than {PATIENCE:g} s, and goes on: try again later; "
                f"its log is writer.log there"
            ) from None
        reason = str(error)
        _failed[namespace.name] = reason
    else:
        _failed.pop(namespace.name, None)
    return None if _is_kept(namespace, end) else reason


def _is_kept(namespace: Namespace, end: float) -> bool:
    """Whether a writer runs and its recovery is complete. Raises LockTimeout."""
    while True:
        try:
            with namespace.locked():
                return namespace.roles.writer_pid is not None
        except LockTimeout:  # it recovers a lot
            if time.monotonic() >= end:
                raise


def directory_for(namespace: Namespace) -> Path:
    """The data directory of the namespace, whether it exists or not.

    Raises :class:`~shmq.WrongDirectory` if this process names another one, and InvalidOption.
    """
    with late_imports:
        from shmq.host.namespace.data_directory import directory_of  # noqa: PLC0415 - rarely needed

    return directory_of(namespace)


def _refuse_wrong_directory(namespace: Namespace) -> None:
    """Raises :class:`~shmq.WrongDirectory`; a process that names no directory has the right one."""
    if os.environ.get("SHMQ_DATA_DIR"):
        directory_for(namespace)


# ---- what is on disk, and not in memory ----


def _find_stored(
    namespace: Namespace, name: str, kinds: Iterable[Kind]
) -> tuple[Kind, Path] | None:
    """The first of the kinds of which there are files of that name, and their directory.

    Needs no lock. Raises :class:`~shmq.WrongDirectory`.
    """
    try:
        directory = directory_for(namespace)
        if not os.path.lexists(directory):  # usually
            return None
        for kind in kinds:
            if name in stored_names(directory, kind):
                return kind, directory
    except (OSError, InvalidOption):
        pass
    return None


def bring_back(namespace: Namespace, name: str, kind: Kind, *others: Kind) -> None:
    """Recover a queue or stream that is not in memory from its files, if there are any.

    If there are none, the same holds for ``others`` that may have the name.

    So that nothing new hides the files, it raises :class:`~shmq.DamagedFile` if they are damaged,
    :class:`~shmq.FileError` if a writer could not recover them for another reason, and
    :class:`~shmq.ShmqError` if no writer exists.
    """
    if _only_looks() or namespace.has(kind, name):
        return
    missing = [kind, *(each for each in others if not namespace.has(each, name))]
    found = _find_stored(namespace, name, missing)
    if found is None:
        return
    kind, directory = found
    reason = attend(namespace)
    if reason is not None:
        raise ShmqError(
            f"{kind} {name!r} of namespace {namespace.name!r} is on disk in {directory} and not "
            f"in memory, and no writer runs that would bring it back ({reason}): start "
            f"`{command_for(namespace.name)} --data-dir {directory}` first"
        )
    refusal = _find_refusal(namespace, directory, kind, name)
    if refusal is not None:
        raise refusal


def _find_refusal(namespace: Namespace, directory: Path, kind: Kind, name: str) -> ShmqError | None:
    """Why a running writer has not recovered it; None: it has, or there are no files."""
    with namespace.locked():  # it may have been recovered or removed since the check
        if namespace.has(kind, name) or _find_stored(namespace, name, [kind]) is None:
            return None
        return refusal_of(directory, kind, name)


def give_up(namespace: Namespace, kind: Kind, name: str) -> bool:
    """Durably remove the files of a name that is not in memory; whether there were any.

    Needs the registry lock. Raises :class:`~shmq.ShmqError` if they cannot be removed.
    """
    if namespace.has(kind, name):  # first: an ending interpreter cannot import
        return False
    found = _find_stored(namespace, name, [kind])
    if found is None:
        return False
    _, directory = found
    try:
        erase_stored(directory, kind, name)
    except OSError as error:
        raise ShmqError(
            f"the files of {kind} {name!r} in {directory} cannot be removed: "
            f"{error.strerror or error}"
        ) from error
    return True


def bring_back_all(namespace: Namespace) -> None:
    """Recover all names, for lists. Names that cannot be recovered are left out.

    Raises :class:`~shmq.WrongDirectory`.
    """
    if _only_looks():
        return
    _refuse_wrong_directory(namespace)
    with contextlib.suppress(ShmqError, OSError):
        directory = directory_for(namespace)
        missing = stored_names(directory, "queue").difference(namespace.queue_names())
        missing |= stored_names(directory, "stream").difference(namespace.stream_names())
        if missing:
            attend(namespace)


def find_unrecovered(namespace: Namespace) -> list[str]:
    """Why each queue and stream that is on disk could not be recovered, and what to do."""
    with contextlib.suppress(ShmqError, OSError):
        found = unrecovered(directory_for(namespace), namespace.has)
        return [f"{kind} {name!r} is not there: {error}" for kind, name, error in found]
    return []


# ---- what is in memory, and is to be on disk ----


def warn_unkept(namespace: Namespace, kind: Kind, name: str) -> None:
    """Ensure that a writer runs, now that something durable exists; warn if none does.

    Raises :class:`~shmq.WrongDirectory`.
    """
    _refuse_wrong_directory(namespace)
    if namespace.roles.writer_pid is not None or _only_looks():
        return
    try:
        reason = attend(namespace)
    except LockTimeout as error:
        if not _waits:
            return  # it is starting
        reason = str(error)
    if reason is not None:
        warnings.warn(
            f"no persistence writer keeps {kind} {name!r} of namespace {namespace.name!r} on disk, "
            f"and none was started ({reason}): what is put there is lost with the machine's "
            f"memory; start `{command_for(namespace.name)}`",
            DurabilityWarning,
            stacklevel=depth(),
        )


def depth() -> int:
    """The number of stack frames between the caller and the code outside this package."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, levels = frame.f_back, levels + 1
    return levels


def _is_ours(module: str) -> bool:
    return module == "contextlib" or module.startswith("shmq")


def missing(namespace: Namespace) -> str:
    """The error text that no writer runs, and how to start one.

    A writer is started, if that is allowed.
    """
    see_to_it(namespace)
    start = f"start `{command_for(namespace.name)}`"
    if not autostarts():
        return f"no persistence writer runs (SHMQ_AUTOSTART=0): {start}"
    if (reason := _failed.get(namespace.name)) is not None:
        return f"no persistence writer runs, and none could be started ({reason}): {start}"
    return f"no persistence writer runs: one is being started now; if that fails, {start}"


def see_to_it(namespace: Namespace) -> None:
    """Start a writer, without waiting, if none runs: for operations that wait for one.

    After a start, the next attempt is made only a while later.
    """
    now = time.monotonic()
    if now < _again_at.get(namespace.name, 0.0) or namespace.roles.writer_pid is not None:
        return
    if autostarts():
        _again_at[namespace.name] = now + PATIENCE  # until the outcome is known
        threading.Thread(target=_start, args=(namespace,), name="shmq writer", daemon=True).start()


def _start(namespace: Namespace) -> None:
    end = time.monotonic() + PATIENCE
    pause = AGAIN
    try:
        with _alone(namespace, end):
            if not _is_kept(namespace, end):
                _launch(namespace, end)
        pause = SOON if namespace.name not in _failed else AGAIN
    except (ShmqError, OSError) as error:
        log.warning("no writer of namespace %r was started: %s", namespace.name, error)
    finally:
        _again_at[namespace.name] = time.monotonic() + pause


def save_options(namespace: Namespace, name: str) -> None:
    """Return once a writer, if there is one, has the options of a queue in its files.

    The caller must not hold the registry lock. Raises :class:`~shmq.NotConfirmed`.
    """
    with late_imports:
        from shmq.disk.storage.writer_control import ask_for_snapshots  # noqa: PLC0415 - rarely needed

    end = time.monotonic() + (_WRITTEN if waits() else _WRITTEN_FOR_CLIENTS)
    while namespace.roles.writer_pid is not None:
        directory, now = namespace.roles.data_dir, time.monotonic()
        try:
            if directory is None:
                raise ShmqError("no data directory exists yet")
            ((_, reason),) = ask_for_snapshots(directory, [name], max(_LOOK, end - now))
        except (ShmqError, OSError) as error:  # the writer begins, or ends
            reason, again = str(error), now < end
        else:
            again = False
            if reason is None:
                return
        if not again:
            raise NotConfirmed(
                f"queue {name!r} of namespace {namespace.name!r} is altered, and its options are "
                f"not known to be on disk: {reason}; they are written with its next snapshot",
                taken=0,
            )
        time.sleep(_LOOK)


def save_stream_options(namespace: Namespace, control: Control) -> None:
    """Return once a writer, if there is one, has the options of a stream in its files.

    The caller must not hold the registry lock. Raises :class:`~shmq.NotConfirmed`.
    """
    wanted = control.alterations
    end = time.monotonic() + (_WRITTEN if waits() else _WRITTEN_FOR_CLIENTS)
    while namespace.roles.writer_pid is not None and not control.deleted:
        if control.stored >= wanted:
            return
        if time.monotonic() >= end:
            raise NotConfirmed(
                f"stream {control.name!r} of namespace {namespace.name!r} is altered, and its "
                f"options are not known to be on disk: its disk fails, or is slow; alter it again",
                taken=0,
            )
        time.sleep(_LOOK)


# ---- exchanges, bindings and schemas ----


@contextlib.contextmanager
def on_disk(namespace: Namespace) -> Iterator[None]:
    """Write the block's changes of exchanges and schemas to disk before it ends.

    In a namespace with neither a writer nor a data directory they are in memory only; if there is a
    directory, and no writer can be started, a DurabilityWarning is issued. The caller must not hold
    the registry lock. Raises :class:`~shmq.ShmqError` before the block if its changes would hide
    data on disk, and :class:`~shmq.NotConfirmed` after it.
    """
    if getattr(_within, "depth", 0):
        yield
        return
    kept = _is_defined_on_disk(namespace)
    _within.depth = 1
    try:
        yield
    finally:
        _within.depth = 0
    if kept:
        _confirm(namespace)


def bring_back_exchanges(namespace: Namespace) -> None:
    """Recover the exchanges that are only on disk. Raises ShmqError."""
    _bring_back(namespace, namespace.exchanges_path, EXCHANGES, "exchanges")


def bring_back_schemas(namespace: Namespace) -> None:
    """Recover the schemas that are only on disk. Raises ShmqError."""
    _bring_back(namespace, namespace.schemas_path, SCHEMAS, "schemas")


def _bring_back(namespace: Namespace, path: Path, file: str, what: str) -> None:
    directory = None if path.exists() or _only_looks() else _definitions_directory(namespace)
    if directory is None or not (directory / file).exists():
        return
    reason = attend(namespace)
    if reason is not None:
        raise ShmqError(
            f"the {what} of namespace {namespace.name!r} are on disk in {directory} and not in "
            f"memory, and no writer runs that would bring them back ({reason}): start "
            f"`{command_for(namespace.name)} --data-dir {directory}` first"
        )


def _definitions_directory(namespace: Namespace) -> Path | None:
    """The directory where they are kept; None: nowhere."""
    try:
        directory = directory_for(namespace)
        there = (directory / LOCK).exists()
    except (OSError, InvalidOption):
        return None
    return directory if there or namespace.roles.writer_pid is not None else None


def _is_defined_on_disk(namespace: Namespace) -> bool:
    """Whether a writer runs to write the coming change; one is started if needed."""
    if _definitions_directory(namespace) is None:
        return False
    bring_back_exchanges(namespace)
    bring_back_schemas(namespace)
    return _is_written(namespace)


def _is_written(namespace: Namespace) -> bool:
    reason = attend(namespace)
    if reason is not None:
        _warn(namespace, f"none was started ({reason})")
    return reason is None


def _warn(namespace: Namespace, why: str) -> None:
    warnings.warn(
        f"no persistence writer keeps the exchanges and schemas of namespace {namespace.name!r} "
        f"on disk, as far as is known here: {why}; what changes of them may be lost with the "
        f"machine's memory; start `{command_for(namespace.name)}`",
        DurabilityWarning,
        stacklevel=depth(),
    )


def _confirm(namespace: Namespace) -> None:
    """Return once the writer has written them. Raises NotConfirmed."""
    with late_imports:
        from shmq.disk.storage.writer_control import ask_to_define  # noqa: PLC0415 - rarely needed

    began = time.monotonic()
    end = began + (_WRITTEN if waits() else _WRITTEN_FOR_CLIENTS)
    while True:
        directory = namespace.roles.data_dir
        now = time.monotonic()
        try:
            if directory is None:
                raise ShmqError("no data directory exists yet")
            refused = ask_to_define(directory, max(_LOOK, end - now))
        except (ShmqError, OSError) as error:
            if now >= end:
                raise _not_confirmed(namespace, str(error)) from error
        else:
            if refused is None:
                return
            raise _not_confirmed(namespace, refused)
        if directory is not None and _cannot_be_seen(directory, now - began):
            _warn(namespace, f"its directory {directory} cannot be seen from here")
            return
        if namespace.roles.writer_pid is None and not _is_written(namespace):
            return
        time.sleep(_LOOK)


def _cannot_be_seen(directory: Path, waited: float) -> bool:
    if directory.exists():
        return False
    if waited >= _MADE:
        _unseen.add(directory)
    return directory in _unseen


def _not_confirmed(namespace: Namespace, why: str) -> NotConfirmed:
    return NotConfirmed(
        f"the exchanges and schemas of namespace {namespace.name!r} are changed, and are not known "
        f"to be on disk: {why}; they are written as soon as that is possible",
        taken=0,
    )


def _on_fork() -> None:
    _again_at.clear()
    _within.depth = 0


os.register_at_fork(after_in_child=_on_fork)
