"""``shmq redrive``: send dead letters back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import shmq
from shmq.cli.shared.flags import connected, count_flag, json_flag
from shmq.cli.shared.names import queue_name
from shmq.cli.shared.output import counted, show, show_json

__all__ = ["redrive"]


@click.command(epilog='Example: shmq redrive orders --where "age < 2h"')
@queue_name(help="The same as NAME: the queue, or its dead-letter queue.")
@count_flag("Send back at most COUNT.  [default: all]")
@click.option(
    "--where",
    metavar="EXPR",
    help="Only dead letters for which EXPR is true; @FILE reads EXPR from FILE. See docs/cli.md.",
)
@click.option(
    "--row",
    "rows",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Only row N of a FILE written by shmq pipeline triage; may be repeated.",
)
@json_flag
@connected
def redrive(
    broker: shmq.Broker,
    name: str,
    count: int | None,
    where: str | None,
    rows: Sequence[int],
    as_json: bool,
) -> None:
    """Send dead letters back to the queue that they came from."""
    expression = _expression(where, rows)
    with broker.queue(name) as queue:
        redriven = queue.redrive(count, where=expression)
    if as_json:
        show_json({"queue": name, "redriven": redriven})
    else:
        show(f"{counted(redriven, 'dead letter')} sent back")


def _expression(where: str | None, rows: Sequence[int]) -> str | None:
    """The expression of the command line, or of the file that it names."""
    if where is None or not where.startswith("@"):
        if rows:
            raise click.UsageError(
                "--row needs a file written by shmq pipeline triage: add --where @FILE"
            )
        return where
    path = Path(where[1:])
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--where {where}: the file is not UTF-8: {error}") from None
    if text.lstrip().startswith("{"):
        return _of_triage(where, text, rows)
    if rows:
        raise click.UsageError(f"--row: {path} is an expression and has no rows: drop --row")
    return text


def _of_triage(where: str, text: str, rows: Sequence[int]) -> str:
    """The rows of a triage as one expression: true where any of them is."""
    try:
        found: Any = json.loads(text)["rows"]
        known = {int(row["row"]): str(row["where"]) for row in found}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise click.UsageError(
            f"--where {where}: this file was not written by shmq pipeline triage: "
            f"{type(error).__name__}: {error}"
        ) from None
    missing = [row for row in rows if row not in known]
    if missing or not known:
        has = f"it has {', '.join(map(str, known))}" if known else "it has none"
        raise click.UsageError(f"--where {where}: no row {missing[0] if missing else 1}: {has}")
    return " or ".join(f"({known[row]})" for row in rows or known)
