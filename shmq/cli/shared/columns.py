"""Messages as a table: an Arrow file, or Parquet. Through pyarrow, where that is installed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from shmq.cli.shared import render
from shmq.persistence.file_message import StoredMessage
from shmq.storage.queue_files import QueueFiles

__all__ = ["writer_of"]

#: Rows that are made into columns at a time.
_BATCH: Final = 10_000


def writer_of(to: str) -> Callable[[str, QueueFiles], None]:
    """What writes a chain's messages to the file ``to``, by the end of its name.

    Raises :class:`click.UsageError` for another name, and :class:`click.ClickException`
    without pyarrow.
    """
    if Path(to).suffix not in {".arrow", ".parquet"}:
        raise click.UsageError(f"--to {to}: the name must end in .arrow or .parquet")
    try:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise click.ClickException(
            "export needs pyarrow, which is not installed: pip install 'shmq[arrow]'"
        ) from None
    return _Columns(pa, parquet).write


class _Columns:
    """Writes rows with pyarrow."""

    def __init__(self, arrow: Any, parquet: Any) -> None:
        self._arrow = arrow
        self._parquet = parquet

    def write(self, to: str, chain: QueueFiles) -> None:
        """Write the messages to a file that takes its name once it is whole."""
        schema = self._schema()
        aside = Path(f"{to}.part")
        make = self._parquet.ParquetWriter if to.endswith(".parquet") else self._arrow.ipc.new_file
        try:
            with make(str(aside), schema) as writer:
                for rows in _batches(chain):
                    writer.write_batch(self._arrow.RecordBatch.from_pylist(rows, schema=schema))
            aside.replace(to)
        finally:
            aside.unlink(missing_ok=True)

    def _schema(self) -> Any:
        a = self._arrow
        moment = a.timestamp("ns", tz="UTC")
        columns = {
            "sequence": a.uint64(),
            "priority": a.uint8(),
            "group": a.string(),
            "deliveries": a.uint16(),
            "codec": a.string(),
            "put_at": moment,
            "visible_at": moment,
            "expires_at": moment,
            "dead": a.string(),
            "headers": a.string(),
            "properties": a.string(),
            "body": a.large_binary(),
        }
        return a.schema(list(columns.items()))


def _batches(chain: QueueFiles) -> Iterator[list[dict[str, Any]]]:
    rows = []
    for fields in chain:
        rows.append(_row(StoredMessage(chain.name, fields), fields))
        if len(rows) == _BATCH:
            yield rows
            rows = []
    if rows:
        yield rows


def _row(message: StoredMessage, fields: dict[str, Any]) -> dict[str, Any]:
    told = render.as_dict(message)
    return {
        "sequence": message.sequence,
        "priority": message.priority,
        "group": message.group,
        "deliveries": message.delivery_count,
        "codec": message.codec,
        "put_at": fields["put_at"],
        "visible_at": fields.get("until"),
        "expires_at": fields.get("expires"),
        "dead": render.dumps(dataclasses.asdict(message.dead)) if message.dead else None,
        "headers": render.dumps(told["headers"]),
        "properties": render.dumps(told["properties"]),
        "body": fields["body"],
    }
