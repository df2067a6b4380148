"""``python -m bench.report``: print the recorded tables; ``--write``: write them into the pages.

The text between the marks in README.md and docs/internals/performance.md is generated from the
recorded results, and a test compares them.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from bench import table
from bench.compiled import ROOT
from bench.estimate import Estimate
from bench.mood import described
from bench.record import RECORDED, Entry, Record, RowRecord, read
from bench.row import TIMES, number
from bench.verdict import Met, Verdict

#: The tables by name, with what follows "measured" in their marks, and the command of each.
TABLES = {
    "local": ("", "make bench"),
    "tcp": (" over TCP", "make bench-tcp"),
    "disk": (" on disk", "make bench-disk"),
    "cluster": (" over a cluster", "make bench-cluster"),
    "frameworks": (" of frameworks", "make bench-frameworks"),
    "spark": (" on Spark", "make bench-spark"),
}


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
#: A peer whose ratio may be 1.
LEVEL = "not measurably different from"
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
    """The block of each table in each document, by the document's path."""
    return {
        "docs/internals/performance.md": {
            name: _block(recorded, name, document) for name in TABLES
        },
        "README.md": {"local": summary(recorded)},
    }


def replaced(text: str, name: str, block: str, path: str) -> str:
    """The text with that block between the table's marks. Raises ValueError without the marks."""
    first, last = marks(name)
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"{path} has no lines {first.strip()} and {last.strip()}")
    return f"{before}{first}{block}{last}{after}"


def marks(name: str) -> tuple[str, str]:
    """The lines before and after a table's block."""
    where, _ = TABLES[name]
    return f"<!-- measured{where} -->\n", f"<!-- end of measured{where} -->\n"


def _block(recorded: dict[str, Record], name: str, made: Callable[[Record], str]) -> str:
    if name in recorded:
        return made(recorded[name])
    _, command = TABLES[name]
    return _not_recorded(f"{command} BENCH=--record")


def _not_recorded(command: str) -> str:
    return f"\nNo results are recorded: `{command}` measures and records them.\n\n"


# ---- the README's ----


def summary(recorded: dict[str, Record]) -> str:
    """The comparisons of the README as Markdown; those whose table is recorded."""
    found = [each for each in COMPARISONS if each.table in recorded]
    if not found:
        return _not_recorded("make bench-record")
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
    lines += [*_places(record), "### Targets", ""]
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


def _places(record: Record) -> Iterator[str]:
    """Say where shmq is faster than the best peer, where it is not, and why."""
    found: dict[str, list[str]] = {place: [] for place in ("faster than", LEVEL, "slower than")}
    for row in record.rows:
        peers = {entry.label for entry in row.entries if entry.role == "peer"}
        for verdict in row.verdicts:
            if verdict.other not in peers or verdict.estimate is None:
                continue
            if place := _place(verdict.estimate, row, verdict):
                why = f"; {row.limit}" if place == "slower than" and row.limit else ""
                found[place].append(
                    f"- {row.title}: {verdict.ours}, {table.measured(verdict)}{why}"
                )
    for place, lines in found.items():
        if lines:
            yield from (f"### Where shmq is {place} the best peer", "", *lines, "")


def _place(estimate: Estimate, row: RowRecord, verdict: Verdict) -> str | None:
    """Where the interval of a ratio puts shmq; None without an interval."""
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return None
    key = next(ratio.key for ratio in row.ratios if (ratio.ours, ratio.other) == _pair(verdict))
    better = next(figure.higher_is_better for figure in row.figures if figure.key == key)
    if low <= 1 <= high:
        return LEVEL
    return "faster than" if (low > 1) == better else "slower than"


def _pair(verdict: Verdict) -> tuple[str, str]:
    return verdict.ours, verdict.other


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
