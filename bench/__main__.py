"""``python -m bench``: measure, print the table, write JSON and plots to bench/results."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import plot, table
from bench.disk import folder
from bench.disk.rows import DISK
from bench.record import DISK_RESULTS, LOCAL_RESULTS, RESULTS, SPARK_RESULTS, TCP_RESULTS
from bench.row import Row
from bench.rows import LOCAL, rows
from bench.run import run
from bench.spark import session
from bench.spark.rows import SPARK
from bench.tcp.rows import TCP
from bench.tcp.server import end_all


def main() -> None:
    """Run what the command line asks for; a run that is ended early leaves nothing behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = _parser()
    given = parser.parse_args()
    name, table_rows, seconds = _table(given)
    try:
        chosen = rows(given.only, given.contestant, table_rows)
    except LookupError as error:
        parser.error(str(error))
    if given.list:
        for row in chosen:
            print(f"{row.key:22} {row.title}")
        return
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
    repetitions = given.repetitions or (1 if given.tiny else 3 if given.quick else 5)
    if seconds:
        seconds = given.seconds or (0.0 if given.tiny else 0.1 if given.quick else seconds)
    console = Console(width=None if sys.stdout.isatty() else 150)
    try:
        record = run(chosen, repetitions, seconds, _say)
        record.machine |= folder.describe() if given.disk or given.spark else {}
    finally:
        session.end()
        end_all()
    _say("")
    table.show(record, console)
    record.write(given.results / name)
    written = plot.draw(record, given.results)
    print(f"\nwritten to {given.results}: {name}, {', '.join(written)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tcp", action="store_true", help="the table of the rows over TCP")
    which.add_argument("--disk", action="store_true", help="the table of the rows on disk")
    which.add_argument("--spark", action="store_true", help="the table of the rows on Spark")
    parser.add_argument("--only", metavar="ROW", action="append", help="this row; may be repeated")
    parser.add_argument("--contestant", metavar="TEXT", help="only whose label has this in it")
    parser.add_argument("--quick", action="store_true", help="3 repetitions of 0.1 s")
    parser.add_argument("--tiny", action="store_true", help="only show that everything works")
    parser.add_argument("--repetitions", type=int, metavar="N", help="5 unless quick")
    parser.add_argument("--seconds", type=float, metavar="S", help="of a turn: 0.3, on disk 1")
    parser.add_argument("--rows", type=_count, metavar="N", help="of a turn on Spark")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    return parser


def _table(given: argparse.Namespace) -> tuple[str, tuple[Callable[[], Row], ...], float]:
    """The file, the rows and the seconds of a turn of the requested table."""
    if given.tcp:
        return TCP_RESULTS, TCP, 0.3
    if given.disk:
        return DISK_RESULTS, DISK, 1.0
    if given.spark:
        return SPARK_RESULTS, SPARK, 0.0
    return LOCAL_RESULTS, LOCAL, 0.3


def _count(given: str) -> int:
    """A number of rows, at least one."""
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"{given!r} is no number of rows: it takes 1 or more")
    return int(given)


def _say(what: str) -> None:
    """Show the current step on a terminal, on a line that the next step replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what[:100]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
