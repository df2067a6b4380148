"""``python -m bench.report``: print the recorded tables; ``--write``: write them into the pages.

The text between the marks in README.md and docs/internals/performance.md is generated from the
recorded results, and a test compares them.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench import table
from bench.compiled import ROOT
from bench.mood import described
from bench.record import RECORDED, Entry, Record, RowRecord, read
from bench.row import TIMES, number
from bench.verdict import Met, Verdict


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of a document that is generated, between two lines that have its mark."""

    mark: str
    #: Measures and records it.
    command: str
    #: Where its rows are measured, in the results.
    where: str = ""

    @property
    def lines(self) -> tuple[str, str]:
        """The line before the block, and that after it."""
        return f"<!-- {self.mark} -->\n", f"<!-- end of {self.mark} -->\n"


#: The tables by name, and what is made of all of them.
TABLES = {
    "local": Block("measured", "make bench BENCH=--record", "in memory"),
    "tcp": Block("measured over TCP", "make bench-tcp BENCH=--record", "over TCP"),
    "disk": Block("measured on disk", "make bench-disk BENCH=--record", "on disk"),
    "cluster": Block("measured over a cluster", "make bench-cluster BENCH=--record", "cluster"),
    "frameworks": Block(
        "measured of frameworks", "make bench-frameworks BENCH=--record", "frameworks"
    ),
    "spark": Block("measured on Spark", "make bench-spark BENCH=--record", "Spark"),
}
RESULTS = "results"
BLOCKS = {**TABLES, RESULTS: Block("results", "make bench-record")}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A row of the README: shmq beside another system, both from one recorded row."""

    work: str
    table: str
    row: str
    ours: str
    other: str
    #: The other system's name, where its label does not say it.
    name: str = ""


#: The rows of the README.
COMPARISONS = (
    Comparison(
        "One host, 64 B, one call each", "local", "one-call",
        "shmq put, get, ack", "multiprocessing.Queue",
    ),
    Comparison(
        "Over TCP, 64 B, one call each, all on one core", "tcp", "tcp-client-one",
        "shmq put, get, ack", "redis-py, LPUSH, LMOVE, LREM", "Redis (LPUSH, LMOVE, LREM)",
    ),
    Comparison(
        "Celery tasks, two worker processes", "frameworks", "celery-rate",
        "shmq", "RabbitMQ", "Celery on RabbitMQ",
    ),
    Comparison(
        "One host, 64 B, one call each", "local", "one-call",
        "shmq put, get, ack", "subetha SpscRing", "a bare ring (subetha SpscRing)",
    ),
)  # fmt: skip
SUMMARY_HEAD = [
    "| messages per second | shmq | compared with | | ratio |",
    "| --- | ---: | --- | ---: | ---: |",
]
HEAD = ["| work | shmq | measured | target | |", "| --- | --- | --- | --- | --- |"]
AHEAD, LEVEL, BEHIND = "Ahead of the best peer", "Level with it", "Behind it, and why"
PLACES = (AHEAD, LEVEL, BEHIND)
_MET: dict[Met, str] = {"met": "met", "missed": "**missed**", "for information": ""}


def main() -> None:
    """Print the recorded tables, or write them."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into the documents")
    given = parser.parse_args()
    recorded = read()
    if given.write:
        write(recorded, ROOT)
        return
    if not recorded:
        parser.error(f"there is no {RECORDED}: run make bench-record")
    for record in recorded.values():
        table.show(record, Console(width=150))


def write(recorded: dict[str, Record], root: Path) -> None:
    """Write the blocks of all tables into the documents below ``root``."""
    for path, blocks in documents(recorded).items():
        page = root / path
        text = page.read_text()
        for name, block in blocks.items():
            text = replaced(text, name, block, path)
        page.write_text(text)


def documents(recorded: dict[str, Record]) -> dict[str, dict[str, str]]:
    """The blocks of each document by their names, by the document's path."""
    tables = {
        name: document(recorded[name]) if name in recorded else _not_recorded(block)
        for name, block in TABLES.items()
    }
    return {
        "docs/internals/performance.md": {RESULTS: results(recorded), **tables},
        "README.md": {RESULTS: summary(recorded)},
    }


def replaced(text: str, name: str, block: str, path: str) -> str:
    """The text with that block between its marks. Raises ValueError without the marks."""
    first, last = BLOCKS[name].lines
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"{path} has no lines {first.strip()} and {last.strip()}")
    return f"{before}{first}{block}{last}{after}"


def _not_recorded(block: Block) -> str:
    return f"\nNo results are recorded: `{block.command}` measures and records them.\n\n"


# ---- the README's ----


def summary(recorded: dict[str, Record]) -> str:
    """The comparisons of the README as Markdown; those whose table is recorded."""
    found = [each for each in COMPARISONS if each.table in recorded]
    if not found:
        return _not_recorded(BLOCKS[RESULTS])
    lines = [_compare(each, recorded[each.table].row(each.row)) for each in found]
    dates = sorted({str(recorded[each.table].machine["date"]) for each in found})
    machine = recorded[found[0].table].machine
    where = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}"
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return "\n".join(["", *SUMMARY_HEAD, *lines, "", f"{where}, {when}."]) + "\n\n"


def _compare(each: Comparison, row: RowRecord) -> str:
    ours, other = (
        number(row.entry(label).figures[row.figures[0].key].median)
        for label in (each.ours, each.other)
    )
    ratio = _ratio(row, each.ours, each.other)
    return f"| {each.work} | {ours} | {each.name or each.other} | {other} | {ratio} |"


# ---- the whole table ----


def _bar(row: RowRecord, verdict: Verdict) -> str:
    met = _MET.get(verdict.met, verdict.met)
    found = table.measured(verdict)
    return f"| {row.title} | {verdict.ours} | {found} | {verdict.bar} | {met} |"


def _where(record: Record) -> str:
    machine = record.machine
    where = f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}"
    where += f", {machine['disk']}" if "disk" in machine else ""
    said = [f"{where}, Python {machine['python']}, {machine['date']}", described(record.mood)]
    return f"{'; '.join(part for part in said if part)}."


def document(record: Record) -> str:
    """The whole table as Markdown."""
    turns = f", turns of {record.turn * 1e3:.0f} ms" if record.turn else ""
    lines = ["", f"{_where(record)} {record.visits} visits to each row{turns}.", ""]
    lines += ["### Targets", ""]
    lines += HEAD
    lines += [
        _bar(row, verdict)
        for row in record.rows
        for verdict in row.verdicts
        if verdict.met != "for information"
    ]
    for row in record.rows:
        lines += ["", f"### {row.title}", "", *_figures(row)]
        if row.crossing:
            lines += [
                "",
                f"A cache line crossed between the cores in {table.shown(row.crossing)} ns.",
            ]
        if row.limit:
            lines += ["", f"What limits it: {row.limit}."]
    return "\n".join(lines) + "\n\n"


# ---- the results of all tables ----


def results(recorded: dict[str, Record]) -> str:
    """Where shmq is ahead of the best peer, level, and behind and why, as Markdown."""
    if not recorded:
        return _not_recorded(BLOCKS[RESULTS])
    found: dict[str, list[str]] = {place: [] for place in PLACES}
    for name, record in recorded.items():
        for row in record.rows:
            for place, cells in _standings(row):
                found[place].append(f"| {' | '.join([TABLES[name].where, *cells])} |")
    lines = [""]
    for place, rows in found.items():
        if rows:
            lines += [f"### {place}", "", *_head(place), *rows, ""]
    return "\n".join(lines) + "\n"


def _standings(row: RowRecord) -> Iterator[tuple[str, list[str]]]:
    """For each verdict that compares with a peer and has an interval: the place, and the cells."""
    peers = {entry.label for entry in row.entries if entry.role == "peer"}
    keys = {(ratio.ours, ratio.other): ratio.key for ratio in row.ratios}
    is_rate = {figure.key: figure.higher_is_better for figure in row.figures}
    for verdict in row.verdicts:
        found = verdict.estimate
        if verdict.other not in peers or found is None or found.low is None or found.high is None:
            continue
        key = keys[verdict.ours, verdict.other]
        if found.low <= 1 <= found.high:
            place = LEVEL
        else:
            place = AHEAD if (found.low > 1) == is_rate[key] else BEHIND
        cells = [row.title, verdict.ours, verdict.other, f"{table.shown(found, f' {TIMES}')} {key}"]
        yield place, cells + [row.limit] * (place == BEHIND)


def _head(place: str) -> list[str]:
    cells = ["", "work", "shmq", "best peer", "ratio", *["why"] * (place == BEHIND)]
    return [f"| {' | '.join(cells)} |", f"| {' | '.join('---' for _ in cells)} |"]


def _figures(row: RowRecord) -> Iterator[str]:
    ours = list(dict.fromkeys(ratio.ours for ratio in row.ratios))
    heads = [f"{figure.key}, {figure.unit}" for figure in row.figures]
    heads += [f"ratio of {label}" for label in ours]
    yield f"| | {' | '.join(heads)} | turns | |"
    yield "| --- |" + " ---: |" * (len(heads) + 1) + " --- |"
    for entry in row.entries:
        label = f"**{entry.label}**" if entry.role == "shmq" else entry.label
        cells = [*_values(entry, row), *(_ratio(row, each, entry.label) for each in ours)]
        first = entry.figures.get(row.figures[0].key)
        turns = first.turns if first else ""
        yield f"| {label} | {' | '.join(cells)} | {turns} | {entry.missing or entry.note} |"


def _values(entry: Entry, row: RowRecord) -> Iterator[str]:
    for figure in row.figures:
        found = entry.figures.get(figure.key)
        yield table.shown(found) if found else ""


def _ratio(row: RowRecord, ours: str, other: str) -> str:
    found = [r.estimate for r in row.ratios if (r.ours, r.other) == (ours, other)]
    return table.shown(found[0], f" {TIMES}") if found else ""


if __name__ == "__main__":
    main()
