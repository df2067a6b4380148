"""``python -m bench``: measure, and print the table; with ``--record`` into the documents."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from bench import plot, record, report, table
from bench.cluster.rows import CLUSTER
from bench.compiled import ROOT
from bench.disk import folder
from bench.disk.rows import DISK
from bench.ending import end_at_signals
from bench.frameworks.rows import FRAMEWORKS
from bench.record import Record
from bench.row import Row
from bench.rows import LOCAL, rows
from bench.run import Plan, run
from bench.spark import session
from bench.spark.rows import SPARK
from bench.tcp.rows import TCP
from bench.tcp.server import end_all
from shmq.cli.shared.plot import drawn_to
from shmq.cli.shared.progress import progress

#: The rows of each table, and how they are measured.
TABLES: dict[str, tuple[tuple[Callable[[], Row], ...], Plan]] = {
    "local": (LOCAL, Plan(visits=6, visit=2.5, turn=0.015)),
    "tcp": (TCP, Plan(visits=6, visit=4.0, turn=0.02)),
    "disk": (DISK, Plan(visits=6, visit=4.0, turn=0.02)),
    "cluster": (CLUSTER, Plan(visits=4, visit=6.0, turn=0.1)),
    "frameworks": (FRAMEWORKS, Plan(visits=3, visit=12.0, turn=0.5)),
    "spark": (SPARK, Plan(visits=6, visit=0.0, turn=0.0)),
}


def main() -> None:
    """Run what the command line asks for; a run that is ended early leaves nothing behind."""
    end_at_signals()
    parser = _parser()
    given = parser.parse_args()
    table_rows, plan = TABLES[given.table]
    try:
        chosen = rows(given.only, given.contestant, table_rows)
    except LookupError as error:
        parser.error(str(error))
    if given.list:
        for row in chosen:
            print(f"{row.key:22} {row.title}")
        return
    if given.record and (given.only or given.contestant or given.tiny):
        parser.error("--record keeps a whole table: leave out --only, --contestant and --tiny")
    try:
        with drawn_to(given.plot, lambda path: plot.figure(found, path)):
            if given.recorded:
                found = _recorded(parser, given.table, chosen)
            else:
                found = _measured(chosen, plan, given)
    except click.ClickException as error:
        parser.error(error.format_message())
    table.show(found, Console(width=None if sys.stdout.isatty() else 150))
    if given.results:
        record.write({given.table: found}, given.results)
    if given.record:
        record.write(record.read() | {given.table: found})
        report.write(record.read(), ROOT)


def _measured(chosen: list[Row], plan: Plan, given: argparse.Namespace) -> Record:
    """The rows, measured now; what they started has ended."""
    plan = _planned(plan, given)
    visits = sum(min(plan.visits, row.visits or plan.visits) for row in chosen)
    try:
        with progress("bench", "visits", quiet=given.quiet, forks=True) as told:
            found = run(
                _changed(chosen, given), plan, lambda over, step: told(over, visits, text=step)
            )
        found.machine.update(folder.describe() if given.table in {"disk", "spark"} else {})
    finally:
        session.end()
        end_all()
    return found


def _recorded(parser: argparse.ArgumentParser, name: str, chosen: list[Row]) -> Record:
    """The rows as they are recorded; the end if they are not."""
    found = record.read().get(name)
    if found is None:
        parser.error(f"--recorded: {record.RECORDED} has no table {name!r}: measure without it")
    keys = {row.key for row in chosen}
    return dataclasses.replace(found, rows=[row for row in found.rows if row.key in keys])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    for name in [name for name in TABLES if name != "local"]:
        what = f"the table of {name}, not of shared memory"
        which.add_argument(f"--{name}", dest="table", action="store_const", const=name, help=what)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="2 short visits, to try something")
    how.add_argument("--tiny", action="store_true", help="only show that everything works")
    parser.add_argument("--only", metavar="ROW", action="append", help="this row; may be repeated")
    parser.add_argument("--contestant", metavar="TEXT", help="only whose label has this in it")
    parser.add_argument("--visits", type=_count, metavar="N", help="of each row")
    parser.add_argument("--rows", type=_count, metavar="N", help="of a turn on Spark")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the results as JSON")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument(
        "--record", action="store_true", help="keep the table, and write it into the documents"
    )
    kept.add_argument("--recorded", action="store_true", help="measure nothing: show the record")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .png, .svg, .pdf")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    parser.set_defaults(table="local")
    return parser


def _changed(chosen: list[Row], given: argparse.Namespace) -> list[Row]:
    """The rows with as much work as the command line says."""
    if given.tiny:
        chosen = [
            dataclasses.replace(row, contestants=[c.tiny() for c in row.contestants])
            for row in chosen
        ]
    if given.rows:
        chosen = [
            dataclasses.replace(row, contestants=[c.sized(given.rows) for c in row.contestants])
            for row in chosen
        ]
    return chosen


def _planned(plan: Plan, given: argparse.Namespace) -> Plan:
    """How long the run takes, as the command line says."""
    if given.tiny:
        plan = Plan(visits=1, visit=0.0, turn=0.0)
    elif given.quick:
        plan = dataclasses.replace(plan, visits=2, visit=plan.visit / 3)
    return dataclasses.replace(plan, visits=given.visits) if given.visits else plan


def _count(given: str) -> int:
    """A number, at least one."""
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"{given!r} is not a number of 1 or more")
    return int(given)


if __name__ == "__main__":
    main()
