"""``python -m bench.report``: a run's table again, and into the documents.

With ``--write``, what stands between the marks in docs/performance.md is replaced by the
whole table, and in README.md by the ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench import table
from bench.compiled import ROOT
from bench.record import RESULTS, Entry, Record, RowRecord
from bench.row import number

BEGIN, END = "<!-- measured -->\n", "<!-- end of measured -->\n"
TIMES = "\N{MULTIPLICATION SIGN}"
_MET = {True: "met", False: "**missed**", None: "not measured"}

#: The rows that the README has, with the way of shmq in each.
RATIOS = (
    ("one-call", "`put`, `get`, `ack`, one call each", "shmq put, get, ack"),
    ("consume", "`consume(prefetch=64)`", "shmq put, consume(64)"),
    (
        "batches",
        "`put_many`, `get_batch`, `ack`, 64 each",
        "shmq put_many, get_batch, ack(64)",
    ),
    ("packed", "`put_packed`, `get_packed`, 1,024 each", "shmq put_packed, get_packed"),
)
#: What the README's ratios are to: its row and its label.
BASE = ("one-call", "multiprocessing.Queue")


def main() -> None:
    """Show or write what a run found."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS / "results.json")
    parser.add_argument("--write", action="store_true", help="into the documents")
    given = parser.parse_args()
    record = Record.read(given.results)
    if not given.write:
        table.show(record, Console(width=150))
        return
    replace(ROOT / "docs/performance.md", document(record))
    replace(ROOT / "README.md", ratios(record))


def replace(path: Path, text: str) -> None:
    """Put the text between the marks of the file. Raises ValueError without the marks."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no lines {BEGIN.strip()} and {END.strip()}")
    path.write_text(f"{before}{BEGIN}{text}{END}{after}")


# ---- the table ----


def document(record: Record) -> str:
    """The whole table as Markdown."""
    machine = record.machine
    where = f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}"
    when = f"Python {machine['python']}, {machine['date']}"
    turns = f"{record.repetitions} turns of about {record.seconds:g} s"
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
    """The README's table as Markdown; only of rows that were run."""
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


def _beside(row: RowRecord, ours: float) -> str:
    peers = [entry for entry in row.entries if entry.role == "peer" and entry.missing is None]
    if not peers:
        return "none does this"
    best = max(peers, key=lambda entry: entry.median("rate"))
    return f"{ours / best.median('rate'):.2f} {TIMES} {best.label}"


if __name__ == "__main__":
    main()
