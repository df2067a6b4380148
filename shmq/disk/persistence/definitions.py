"""The exchanges and schemas of a namespace on disk: its writer keeps them, recovery restores them.

``writer.exchanges`` has the operations that create the exchanges and their bindings, and
``writer.schemas`` the versions of the schemas of durable queues and streams. Each exists as
long as it has contents, and is rewritten as a whole: see :mod:`shmq.disk.storage.map_file`.

The file in memory takes precedence while it exists, even if it is empty. So after the last
exchange, or schema, is deleted, the file in memory stays until the one on disk is removed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any, Final

from shmq.disk.persistence.conflicts import set_definitions_aside
from shmq.disk.storage.disk import LASTING, Disk, remove_file, unreadable
from shmq.disk.storage.file_header import DEFINITIONS, FileHeader
from shmq.disk.storage.map_file import read_map, write_map
from shmq.disk.storage.paths import EXCHANGES, SCHEMAS
from shmq.errors import DamagedFile, FileError, NoSuchQueue, NoSuchStream, SegmentError, ShmqError
from shmq.host.namespace import streams
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from shmq.model.routing.book import Book
from shmq.model.routing.table import Operation, Table, operation_of
from shmq.model.schema.book import Rows, Schemas, versions_of

log = logging.getLogger("shmq")

_UNFINISHED: Final = ".definitions.tmp"
_NOTHING: Final = (0, 0, 0)


class Definitions:
    """Writes the exchanges and schemas to disk when they have changed. For any thread."""

    def __init__(self, namespace: Namespace, directory: DataDirectory) -> None:
        self._namespace = namespace
        self._directory = directory
        self._book = Book.of(namespace)
        self._schemas = Schemas(namespace)
        self._lock = threading.Lock()
        #: The change counter of the exchanges and the stamp of the schemas, as last written.
        self._changes = -1
        self._stamp = _NOTHING
        self._failure: str | None = None

    def keep(self) -> None:
        """Write what is in memory now to disk, durably. Raises OSError and ShmqError."""
        with self._lock:
            self._keep_exchanges()
            self._keep_schemas()

    def attend(self) -> None:
        """Do the same; an error is logged, once."""
        try:
            self.keep()
        except (OSError, ShmqError) as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.error(
                    "exchanges and schemas cannot be written to %s: %s; it is tried again",
                    self._directory.path,
                    error,
                )
        else:
            self._failure = None

    def _keep_exchanges(self) -> None:
        changes = self._book.look()
        if changes == self._changes:
            return
        operations = self._book.operations()
        if operations is not None:
            self._write(EXCHANGES, {"operations": operations} if operations else {})
            if not operations:
                self._book.tidy()
        self._changes = changes

    def _keep_schemas(self) -> None:
        stamp = self._schemas.stamp()
        if stamp == self._stamp:
            return
        if stamp is not None:
            rows = self._schemas.rows()
            kept = {name: each for name, each in rows.items() if self._is_durable(name)}
            self._write(SCHEMAS, {"schemas": kept} if kept else {})
            if not rows:
                with contextlib.suppress(ShmqError), self._namespace.locked():
                    self._schemas.tidy(lambda _: True)
        self._stamp = stamp or _NOTHING

    def _is_durable(self, name: str) -> bool:
        """Whether the queue or the stream of that name survives a reboot."""
        with contextlib.suppress(NoSuchQueue, SegmentError):
            if self._namespace.open_segment(name).options["durability"] != "memory":
                return True
        with contextlib.suppress(NoSuchStream, SegmentError):
            control = streams.look_at(self._namespace, name)
            return control is not None and control.options["durability"] != "memory"
        return False

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """Write the map to the file, durably; remove the file if the map is empty."""
        disk = self._directory.disk
        if content:
            self._directory.ready()
            write_map(disk, name, _UNFINISHED, _make_header(self._namespace.name), content)
        elif self._directory.held:
            remove_file(disk, name)


def _make_header(namespace: str) -> FileHeader:
    return FileHeader(
        kind=DEFINITIONS, name=namespace, options={}, salt=0, queue_id=0, hash_key=0, number=0,
        created=time.time_ns(),
    )  # fmt: skip


# ---- after a reboot ----


def recover_definitions(namespace: Namespace, disk: Disk) -> None:
    """Restore the exchanges and the schemas that are on disk and not in memory.

    A binding or schema is restored if its queue or stream exists, so those must be recovered
    first. A file that cannot be read is set aside and logged. Needs the registry lock. May be
    killed at any moment and called again. Raises OSError, NoSpace, SegmentError.
    """
    if not namespace.exchanges_path.exists():
        with _set_aside_if_damaged(disk, EXCHANGES):
            _restore_exchanges(namespace, disk)
    if not namespace.schemas_path.exists():
        with _set_aside_if_damaged(disk, SCHEMAS):
            _restore_schemas(namespace, disk)


def check_definitions(disk: Disk, name: str) -> None:
    """Raises FileError if the file is damaged, and OSError."""
    read_map(disk, name, DEFINITIONS)


def _read(disk: Disk, name: str) -> tuple[FileHeader, dict[str, Any], int] | None:
    """The file's map; None: there is none. Raises FileError, and OSError for what may pass."""
    try:
        return read_map(disk, name, DEFINITIONS)
    except OSError as error:
        if error.errno not in LASTING:
            raise
        raise unreadable(error, disk.path(name)) from error


@contextlib.contextmanager
def _set_aside_if_damaged(disk: Disk, name: str) -> Any:
    try:
        yield
    except FileError as error:
        set_definitions_aside(disk, name, "cannot be read", error)


def _restore_exchanges(namespace: Namespace, disk: Disk) -> None:
    found = _read(disk, EXCHANGES)
    if found is None:
        return
    _, content, at = found
    table = Table()
    try:
        for operation in content["operations"]:
            table.apply(operation_of(operation, table))
    except (ShmqError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise DamagedFile(str(disk.path(EXCHANGES)), at, f"it makes no sense: {error}") from None
    stored = table.size
    for kind, name in _list_targets(table):
        if not namespace.has(kind, name):
            table.apply(["forget", kind, name])
    Book.of(namespace).restore(table.operations())
    log.info(
        "recovered %d exchanges with %d bindings; bindings to missing queues and streams: %d",
        len(table.summaries()),
        table.size - len(table.summaries()),
        stored - table.size,
    )


def _list_targets(table: Table) -> set[tuple[str, str]]:
    """The queues and streams with bindings."""
    bound: list[Operation] = [one for one in table.operations() if one[0] == "bind"]
    return {(one[2], one[3]) for one in bound if one[2] != "exchange"}


def _restore_schemas(namespace: Namespace, disk: Disk) -> None:
    found = _read(disk, SCHEMAS)
    if found is None:
        return
    _, content, at = found
    try:
        rows: Rows = content["schemas"]
        table = versions_of(rows)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise DamagedFile(str(disk.path(SCHEMAS)), at, f"it makes no sense: {error}") from None
    there = {
        name: versions
        for name, versions in table.items()
        if namespace.has("queue", name) or namespace.has("stream", name)
    }
    Schemas(namespace).restore(there)
    log.info("recovered the schemas of %d queues and streams", len(there))
