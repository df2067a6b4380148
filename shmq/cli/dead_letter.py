"""``shmq redrive``: send dead letters back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import shmq
from shmq.cli.shared.flags import connected, count_flag, json_flag, queue_name
from shmq.cli.shared.output import counted, show, show_json

__all__ = ["redrive"]


@click.command()
@queue_name(help="The queue whose dead letters go back, or the dead-letter queue itself.")
@count_flag("How many to send back at most.")
@click.option(
    "--where",
    metavar="EXPR",
    help="Send back those alone for which EXPR is true; @FILE reads it from FILE.",
)
@click.option(
    "--row",
    "rows",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Of a FILE that triage wrote, row N alone; may be repeated.",
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
    """Send dead letters back where they came from."""
    meant = _expression(where, rows)
    with broker.queue(name) as queue:
        redriven = queue.redrive(count, where=meant)
    if as_json:
        show_json({"queue": name, "redriven": redriven})
    else:
        show(f"{counted(redriven, 'dead letter')} sent back")


def _expression(where: str | None, rows: Sequence[int]) -> str | None:
    """What was given, or what stands in the file that was named."""
    if where is None or not where.startswith("@"):
        if rows:
            raise click.UsageError("--row takes a file that triage wrote: --where @FILE")
        return where
    path = Path(where[1:])
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--where {where}: the file is not UTF-8: {error}") from None
    if text.lstrip().startswith("{"):
        return _of_triage(where, text, rows)
    if rows:
        raise click.UsageError(f"--row: {path} has an expression, and no rows of a triage")
    return text


def _of_triage(where: str, text: str, rows: Sequence[int]) -> str:
    """The rows of a triage as one expression: what is meant by any of them."""
    try:
        found: Any = json.loads(text)["rows"]
        known = {int(row["row"]): str(row["where"]) for row in found}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise click.UsageError(
            f"--where {where}: that is no file that triage wrote: {type(error).__name__}: {error}"
        ) from None
    missing = [row for row in rows if row not in known]
    if missing or not known:
        has = f"it has {', '.join(map(str, known))}" if known else "it has none"
        raise click.UsageError(f"--where {where}: no row {missing[0] if missing else 1}: {has}")
    return " or ".join(f"({known[row]})" for row in rows or known)
