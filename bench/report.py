"""``python -m bench.report``: the tables of the last runs again, and into the documents.

With ``--write``, what stands between the marks in docs/performance.md is replaced by the
whole table, and in README.md by what is most asked for: of each table that there is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench import table
from bench.compiled import ROOT
from bench.record import (
    DISK_RESULTS,
    LOCAL_RESULTS,
    RESULTS,
    SPARK_RESULTS,
    TCP_RESULTS,
    Entry,
    Record,
    RowRecord,
)
from bench.row import number

BEGIN, END = "<!-- measured -->\n", "<!-- end of measured -->\n"
TCP_BEGIN, TCP_END = "<!-- measured over TCP -->\n", "<!-- end of measured over TCP -->\n"
DISK_BEGIN, DISK_END = "<!-- measured on disk -->\n", "<!-- end of measured on disk -->\n"
SPARK_BEGIN, SPARK_END = "<!-- measured on Spark -->\n", "<!-- end of measured on Spark -->\n"
TIMES = "\N{MULTIPLICATION SIGN}"
_MET = {True: "met", False: "**missed**", None: "not measured"}

#: The rows in the README, with the way of shmq in each.
RATIOS = (
    ("one-call", "`put`, `get`, `ack`, one call each", "shmq put, get, ack"),
    ("consume", "`consume(prefetch=64)`", "shmq put, consume(64)"),
    (
        "batches",
        "`put_many`, `get_batch`, `ack`, 64 each",
        "shmq put_many, get_batch, ack(64)",
    ),
    ("packed", "`put_packed`, `get_packed`, 1,024 each", "shmq put_packed, get_packed"),
    ("stream-append", "`append` to a stream, read by another", "shmq append, read"),
    ("stream-batches", "`append_many` of 64, read by another", "shmq append_many(64), read"),
)
#: The base of the README's ratios: its row and its label.
BASE = ("one-call", "multiprocessing.Queue")

#: The rows over TCP in the README, with the way of shmq in each.
RATES = (
    ("tcp-produce", "put, 64 under way", "shmq PRODUCE"),
    ("tcp-batch", "put, 64 in a request", "shmq PRODUCE_BATCH of 64"),
    (
        "tcp-consume",
        "get and acknowledge, subscribed",
        "shmq SUBSCRIBE, an ACK for what came together",
    ),
    ("tcp-client-one", "from Python, one call each", "shmq put, get, ack"),
    (
        "tcp-client-pipelined",
        "from Python, many under way",
        "shmq pipeline put, consume(prefetch=256)",
    ),
    ("tcp-client-batch", "from Python, 64 a call", "shmq put_many, get_batch, ack(64)"),
)


def main() -> None:
    """Print or write the results of a run."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="into the documents")
    given = parser.parse_args()
    names = (LOCAL_RESULTS, TCP_RESULTS, DISK_RESULTS, SPARK_RESULTS)
    paths = [given.results / name for name in names]
    if not any(path.exists() for path in paths):
        parser.error(
            f"there is none of {', '.join(map(str, paths))}: run make bench, make bench-tcp, "
            f"make bench-disk or make bench-spark"
        )
    for path in paths:
        if path.exists() and given.write:
            write(Record.read(path), path.name, ROOT)
        elif path.exists():
            table.show(Record.read(path), Console(width=150))


def write(record: Record, name: str, root: Path) -> None:
    """Write the results of that name into the documents below ``root``."""
    page, readme = root / "docs/performance.md", root / "README.md"
    if name == LOCAL_RESULTS:
        replace(page, document(record))
        replace(readme, ratios(record))
    elif name == TCP_RESULTS:
        replace(page, document(record), TCP_BEGIN, TCP_END)
        replace(readme, rates(record), TCP_BEGIN, TCP_END)
    elif name == DISK_RESULTS:
        replace(page, document(record), DISK_BEGIN, DISK_END)
    else:
        replace(page, document(record), SPARK_BEGIN, SPARK_END)


def replace(path: Path, text: str, first: str = BEGIN, last: str = END) -> None:
    """Put the text between the marks of the file. Raises ValueError without the marks."""
    before, begin, rest = path.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"{path} has no lines {first.strip()} and {last.strip()}")
    path.write_text(f"{before}{first}{text}{last}{after}")


# ---- the table ----


def document(record: Record) -> str:
    """The whole table as Markdown."""
    machine = record.machine
    where = f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}"
    where += f", {machine['disk']}" if "disk" in machine else ""
    when = f"Python {machine['python']}, {machine['date']}"
    turns = f"{record.repetitions} turns"
    if record.seconds:
        turns += f" of about {record.seconds:g} s"
    lines = [
        "",
        f"{where}, {when}. Median (least to most) of {turns}.",
        "",
        "### The bars",
        "",
        "| work | bar | measured | |",
        "| --- | --- | --- | --- |",
        *_bars(record),
    ]
    for row in record.rows:
        lines += ["", f"### {row.title}", "", *_figures(row)]
        if row.limit:
            lines += ["", f"What limits it: {row.limit}."]
    return "\n".join(lines) + "\n\n"


def _bars(record: Record) -> Iterator[str]:
    for row in record.rows:
        for verdict in row.verdicts:
            yield (f"| {row.title} | {verdict.bar} | {verdict.measured} | {_MET[verdict.met]} |")


def _figures(row: RowRecord) -> Iterator[str]:
    heads = [f"{figure.key}, {figure.unit}" for figure in row.figures]
    yield f"| | {' | '.join(heads)} | |"
    yield "| --- |" + " ---: |" * len(heads) + " --- |"
    for entry in row.entries:
        cells = [_cell(entry, figure.key) for figure in row.figures]
        label = f"**{entry.label}**" if entry.role == "shmq" else entry.label
        yield f"| {label} | {' | '.join(cells)} | {entry.missing or entry.note} |"


def _cell(entry: Entry, key: str) -> str:
    if entry.missing is not None:
        return ""
    values = entry.values[key]
    return f"{number(entry.median(key))} ({number(min(values))} to {number(max(values))})"


# ---- the ratios ----


def ratios(record: Record) -> str:
    """The README's table as Markdown, only with rows that were run."""
    base = record.row(BASE[0]).entry(BASE[1]).median("rate")
    lines = ["", f"| | times {BASE[1]} | beside the fastest peer |", "| --- | --- | --- |"]
    for key, title, label in RATIOS:
        try:
            row = record.row(key)
            ours = row.entry(label).median("rate")
        except LookupError:
            continue
        lines.append(f"| {title} | {ours / base:.1f} {TIMES} | {_beside(row, ours)} |")
    return "\n".join(lines) + "\n\n"


def rates(record: Record) -> str:
    """The README's table of the rows over TCP, only with rows that were run."""
    lines = ["", "| over TCP | messages/s | beside the fastest peer |", "| --- | --- | --- |"]
    for key, title, label in RATES:
        try:
            row = record.row(key)
            ours = row.entry(label).median("rate")
        except LookupError:
            continue
        lines.append(f"| {title} | {number(ours)} | {_beside(row, ours)} |")
    return "\n".join(lines) + "\n\n"


def _beside(row: RowRecord, ours: float) -> str:
    peers = [entry for entry in row.entries if entry.role == "peer" and entry.missing is None]
    if not peers:
        return "none does this"
    best = max(peers, key=lambda entry: entry.median("rate"))
    return f"{ours / best.median('rate'):.2f} {TIMES} {best.label}"


if __name__ == "__main__":
    main()
