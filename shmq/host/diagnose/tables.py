"""Checks the databases of tables; they may be in use."""

from __future__ import annotations

from collections.abc import Iterator

from shmq.disk.storage.paths import TABLES
from shmq.errors import ForeignSegment, ShmqError, TableDeleted
from shmq.host.diagnose.segments import SOUND, SegmentReport, state_of
from shmq.host.namespace.namespace import Namespace
from shmq.model.table.backup import problems_of
from shmq.model.table.files import TableFile, tables_of


def examine_tables(namespace: str) -> Iterator[SegmentReport]:
    """Check the pages of each table, which is read as a whole."""
    try:
        found = tables_of(Namespace.of(namespace))
    except ForeignSegment as error:
        yield SegmentReport(name=TABLES, state="foreign", problems=[str(error)])
        return
    for table in found:
        try:
            yield _check(table)
        except TableDeleted:
            continue  # it was deleted in the meantime


def _check(table: TableFile) -> SegmentReport:
    name = f"{TABLES}/{table.name}"
    try:
        problems = problems_of(table)
    except TableDeleted:
        raise
    except (ShmqError, OSError) as error:
        return SegmentReport(name=name, state=state_of(error), problems=[str(error)])
    return SegmentReport(name=name, state="damaged" if problems else SOUND, problems=problems)
