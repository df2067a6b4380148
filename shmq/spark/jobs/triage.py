"""``triage``: groups dead letters by kind, each with an expression that selects it."""

from __future__ import annotations

import collections
import datetime as dt
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import pyarrow as pa
from msgspec import Meta
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from rich import box, table
from rich.console import Console
from rich.text import Text

from shmq.disk.storage.disk import completed
from shmq.errors import InvalidOption, ShmqError
from shmq.model.codec.codecs import decode_body
from shmq.model.expression.fingerprint import shape_of
from shmq.model.expression.parse import quoted
from shmq.native._core import codec_number
from shmq.native.descriptors import open_file
from shmq.spark.jobs.config import Base, Table, key
from shmq.spark.jobs.endpoints import BatchSource
from shmq.spark.jobs.job import Batch, Progress
from shmq.spark.jobs.values import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: The columns that define a kind.
_KIND: Final = ("reason", "queue", "error", "codec", "shape")

#: The columns that are read of a dead letter; headers are shown if the source has them.
_NEEDED: Final = (
    "value",
    "offset",
    "codec",
    "dead_reason",
    "dead_queue",
    "dead_deliveries",
    "dead_at",
    "last_error",
)

_SAMPLE: Final = (
    "struct<sequence: bigint, body: string, headers: array<struct<key: string, value: string>>>"
)
_LETTER: Final = (
    "reason string, queue string, error string, codec string, shape string, bytes bigint, "
    f"deliveries int, at timestamp, sample {_SAMPLE}"
)
_REPORT: Final = (
    "row int, count bigint, reason string, queue string, error string, codec string, "
    "shape string, bytes bigint, deliveries int, first timestamp, last timestamp, "
    f"samples array<{_SAMPLE}>, where string, triaged_at timestamp"
)

#: The most characters of a body, or of a header, in a sample.
_SHOWN: Final = 200


class Triage(Table, frozen=True, kw_only=True):
    """What to report of the dead letters, and where."""

    json: Annotated[
        Location | None,
        key("A file for the kinds; shmq redrive --where @FILE takes it.", "triage.json"),
    ] = None
    parquet: Annotated[
        Location | None, key("A folder of Parquet to which the kinds are added.", "triage")
    ] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)], key("The most kinds to report, the largest first.")
    ] = 100
    samples: Annotated[
        Annotated[int, Meta(ge=0, le=100)], key("How many letters of each kind to show.")
    ] = 3


class TriageFile(Base, frozen=True, kw_only=True):
    """The file of the job."""

    source: Annotated[
        BatchSource,
        key(
            "Where the dead letters are: a queue, files of queues, or an archive.",
            {"options": {"subscribe": "jobs.dlq"}},
        ),
    ]
    triage: Annotated[Triage, key("What to report of the dead letters, and where.")] = Triage()


def kinds(letters: DataFrame, samples: int, *, headers: bool = False) -> DataFrame:
    """The kinds of the letters, the largest first: counts, times and samples.

    The letters have the columns of ``format("shmq")``, with ``headers`` if they are to be shown.
    Messages that are not dead letters are left out.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy, and an extra

    shown = ("headers",) if headers else ()
    dead = letters.where("dead_reason is not null").select(*_NEEDED, *shown)
    letter = to_arrow_schema(cast(StructType, StructType.fromDDL(_LETTER)), timezone="UTC")
    described = dead.mapInArrow(_Reader(letter, samples).read, _LETTER)
    return (
        described.groupBy(*_KIND)
        .agg(
            f.count("*").alias("count"),
            f.sum("bytes").alias("bytes"),
            f.max("deliveries").alias("deliveries"),
            f.min("at").alias("first"),
            f.max("at").alias("last"),
            f.slice(f.sort_array(f.collect_list("sample")), 1, max(samples, 1)).alias("samples"),
        )
        .orderBy(f.desc("count"), "first", *_KIND)
    )


class _Reader:
    """Reads the shapes of letters, and keeps the first few bodies of each kind as samples."""

    def __init__(self, schema: pa.Schema, samples: int) -> None:
        self._schema = schema
        self._samples = samples

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row for each letter, without its body."""
        shown: collections.Counter[tuple[str, ...]] = collections.Counter()
        for batch in batches:
            made = [self._make_row(row, shown) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(made, schema=self._schema)

    def _make_row(self, row: Mapping[str, Any], shown: collections.Counter[Any]) -> dict[str, Any]:
        body, codec = row["value"] or b"", row["codec"] or "bytes"
        made = {
            "reason": row["dead_reason"],
            "queue": row["dead_queue"],
            "error": row["last_error"],
            "codec": codec,
            "shape": shape_of(codec, body),
        }
        kind = tuple(made.values())
        shown[kind] += 1
        few = shown[kind] <= self._samples
        return {
            **made,
            "bytes": len(body),
            "deliveries": row["dead_deliveries"],
            "at": row["dead_at"],
            "sample": _sample(row, codec, body) if few else None,
        }


def _sample(row: Mapping[str, Any], codec: str, body: bytes) -> dict[str, Any]:
    headers = [
        {
            "key": str(each["key"]),
            "value": _cut((each["value"] or b"").decode(errors="backslashreplace")),
        }
        for each in row.get("headers") or ()
    ]
    return {"sequence": row["offset"], "body": _render_body(codec, body), "headers": headers}


def _render_body(codec: str, body: bytes) -> str:
    """The readable beginning of a body: a value as JSON, text as is, else escaped bytes."""
    try:
        value = decode_body(body, codec_number(codec), codec)
    except (ShmqError, ValueError, TypeError, RecursionError):
        value = body
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, bytes):
        return _cut(value[: _SHOWN + 1].decode(errors="backslashreplace"))
    try:
        return _cut(json.dumps(value, allow_nan=False, default=_as_text, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return _cut(str(value))


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def _cut(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def run(
    session: SparkSession,
    config: TriageFile,
    tell: Callable[[Progress], None],
    _: Callable[[], bool],
) -> None:
    """Group the current dead letters, and write the report where the file says."""
    settings = config.triage
    letters = config.source.read(session)
    missing = [name for name in _NEEDED if name not in letters.columns]
    if missing:
        raise InvalidOption(
            f"triage needs the columns {', '.join(missing)}, which [source] does not have"
        )
    at = dt.datetime.now(dt.UTC)
    made = kinds(letters, settings.samples, headers="headers" in letters.columns)
    found = made.limit(settings.limit + 1).collect()
    report = [
        _make_report(number, row, at) for number, row in enumerate(found[: settings.limit], 1)
    ]
    count = sum(row["count"] for row in report)
    tell(Progress(rows=count, counts={"kinds": len(report)}))
    show(report, more=len(found) > len(report))
    if settings.json is not None:
        _write_json(Path(settings.json), report, at)
    if settings.parquet is not None:
        rows = session.createDataFrame(report, _REPORT)
        rows.coalesce(1).write.mode("append").parquet(settings.parquet)


def _make_report(number: int, row: Row, at: dt.datetime) -> dict[str, Any]:
    fields: dict[str, Any] = row.asDict(recursive=True)
    fields["first"], fields["last"] = (
        fields[name].astimezone(dt.UTC) for name in ("first", "last")
    )
    return {"row": number, **fields, "where": _format_where(fields), "triaged_at": at}


def _format_where(kind: Mapping[str, Any]) -> str:
    """The expression for the letters of a kind, up to the last one in the report."""
    parts = [f"{name} = {'null' if kind[name] is None else quoted(kind[name])}" for name in _KIND]
    return " and ".join([*parts, f"at <= {quoted(_format_iso(kind['last']))}"])


def _format_iso(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_json(path: Path, report: list[dict[str, Any]], at: dt.datetime) -> None:
    """Write the file atomically, readable only by its owner: it contains bodies."""
    content = {"triaged_at": _format_iso(at), "rows": report}
    text = json.dumps(content, allow_nan=False, indent=1, default=_format_iso, ensure_ascii=False)
    with completed(path) as aside:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(open_file(aside, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text + "\n")


JOB: Final = Batch(name="triage", config=TriageFile, run=run)


_RIGHT: Final = ("row", "count", "bytes")
_UNBOUNDED: Final = 100_000


def show(report: Sequence[Mapping[str, Any]], *, more: bool) -> None:
    """Print a row for each kind, the largest first; ``more``: smaller ones are left out."""
    terminal = sys.stdout.isatty()
    console = Console(
        file=sys.stdout, width=None if terminal else _UNBOUNDED, emoji=False, highlight=False
    )
    made = table.Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False)
    names = ("row", "count", *_KIND, "first", "last", "sample")
    for name in names:
        made.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=not terminal)
    for row in report:
        made.add_row(*(Text(_format_cell(row, name)) for name in names))
    console.print(made)
    if more:
        console.print("and smaller kinds: raise limit in [triage] to see them")


def _format_cell(row: Mapping[str, Any], name: str) -> str:
    if name == "sample":
        samples = row["samples"]
        return _escape_controls(samples[0]["body"])[:60] if samples else ""
    value = row[name]
    if name == "error":
        return _escape_controls(value or "")[:60]
    if name in ("first", "last"):
        return str(value.strftime("%Y-%m-%d %H:%M:%SZ"))
    return _escape_controls(str(value))


def _escape_controls(text: str) -> str:
    """The text with a terminal's control characters escaped."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
