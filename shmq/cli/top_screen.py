"""One frame of ``shmq top``: a row for each queue, in as many columns as fit."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.table import Table

import shmq
from shmq.cli.shared.broker_target import is_this_process
from shmq.cli.shared.exit_codes import describe
from shmq.cli.shared.names import EXCHANGE, QUEUE, STREAM, found_of
from shmq.cli.shared.output import age, cell, one_line, table
from shmq.cli.stats import stream_activity
from shmq.diagnose.journals import journal_problem

__all__ = ["ORDERS", "Row", "clipped", "draw", "look", "ordered"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a queue is doing; the numbers are those of :class:`shmq.QueueStats`.

    A stream has its records, their age and rate; an exchange keeps nothing, and has no numbers.
    """

    name: str
    kind: str = QUEUE
    #: Visible messages; of a stream, its records.
    depth: int = 0
    oldest_age: float = 0.0
    in_flight: int = 0
    delayed: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    dead_lettered: int = 0
    #: Messages that are not on disk yet; None: the queue is in memory alone.
    journal_lag: int | None = None
    #: What is wrong with the queue's disk; None: nothing.
    unkept: str | None = None
    #: Processes that sleep until there is a message, or space.
    waiting: int = 0
    #: The other processes that are attached, by name and pid.
    who: list[str] = dataclasses.field(default_factory=list)
    #: Why the queue cannot be used, and its numbers are 0; None if it can.
    problem: str | None = None


#: The values to sort by, the largest first; rows without a difference by name.
ORDERS: dict[str, Callable[[Row], float]] = {
    "name": lambda _: 0.0,
    "depth": lambda row: row.depth,
    "oldest": lambda row: row.oldest_age,
    "flight": lambda row: row.in_flight,
    "in": lambda row: row.rate_in,
    "out": lambda row: row.rate_out,
    "dead": lambda row: row.dead_lettered,
}


def _to_disk(row: Row) -> str:
    if row.journal_lag is None:
        return ""
    return f"{row.journal_lag:,}" + ("!" if row.unkept else "")


#: The columns, in the order in which they stand.
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "name": lambda row: row.name,
    "kind": lambda row: row.kind,
    "visible": lambda row: f"{row.depth:,}" if row.kind != EXCHANGE else "",
    "oldest": lambda row: age(row.oldest_age) if row.depth else "",
    "in flight": lambda row: f"{row.in_flight:,}" if row.kind == QUEUE else "",
    "delayed": lambda row: f"{row.delayed:,}" if row.kind == QUEUE else "",
    "in/s": lambda row: f"{row.rate_in:,.0f}" if row.kind != EXCHANGE else "",
    "out/s": lambda row: f"{row.rate_out:,.0f}" if row.kind == QUEUE else "",
    "dead": lambda row: f"{row.dead_lettered:,}" if row.kind == QUEUE else "",
    "to disk": _to_disk,
    "waiting": lambda row: f"{row.waiting:,}" if row.kind == QUEUE else "",
    "who": lambda row: ", ".join(row.who),
}

#: The columns to leave out if there is no room, in this order.
_DISPENSABLE = (
    "who",
    "waiting",
    "kind",
    "to disk",
    "delayed",
    "dead",
    "oldest",
    "in flight",
    "in/s",
    "out/s",
)

#: The space between two columns of a table on a terminal, and around them all.
_GAP = 3
_EDGES = 2
_LEAST_WHO = 12
_LEAST_NAME = 8


def look(broker: shmq.Broker, kinds: Sequence[str] = ()) -> list[Row]:
    """A row for each queue, stream and exchange, also for one that cannot be used.

    Of the ``kinds``, or of all if those are empty.
    """
    rows = []
    for summary in found_of(broker, QUEUE, kinds):
        rows += _looked_at(broker, QUEUE, summary, _of_queue)
    for summary in found_of(broker, STREAM, kinds):
        rows += _looked_at(broker, STREAM, summary, _of_stream)
    return rows + [Row(name=one.name, kind=EXCHANGE) for one in found_of(broker, EXCHANGE, kinds)]


def _looked_at(
    broker: shmq.Broker,
    kind: str,
    summary: shmq.QueueSummary | shmq.StreamSummary,
    measure: Callable[[shmq.Broker, str], Row],
) -> list[Row]:
    """The row of a queue or stream, with its problem; none if it was deleted."""
    name, problem = summary.name, summary.problem
    if problem is None:
        try:
            return [measure(broker, name)]
        except (shmq.NoSuchQueue, shmq.QueueDeleted, shmq.NoSuchStream, shmq.StreamDeleted):
            return []
        except (shmq.ShmqError, OSError) as error:
            problem = describe(error)
    return [Row(name=name, kind=kind, problem=problem)]


def _of_queue(broker: shmq.Broker, name: str) -> Row:
    with broker.queue(name) as queue:
        others = [a for a in queue.attachments() if not is_this_process(broker, a)]
        return _row(queue.stats(), others)


def _of_stream(broker: shmq.Broker, name: str) -> Row:
    with broker.stream(name) as stream:
        doing = stream_activity(stream)
    return Row(
        name=name,
        kind=STREAM,
        depth=int(doing["records"]),
        oldest_age=doing["oldest_age"],
        rate_in=doing["rate_in"],
    )


def _row(stats: shmq.QueueStats, attachments: Sequence[shmq.Attachment]) -> Row:
    who = collections.Counter(f"{one.name} {one.pid}" for one in attachments if one.alive)
    return Row(
        name=stats.name,
        depth=stats.depth,
        oldest_age=stats.oldest_age,
        in_flight=stats.in_flight,
        delayed=stats.delayed,
        rate_in=stats.rate_in,
        rate_out=stats.rate_out,
        dead_lettered=stats.dead_lettered,
        journal_lag=None if stats.durability == "memory" else stats.journal_lag,
        unkept=journal_problem(stats),
        waiting=stats.waiting_get + stats.waiting_put,
        who=[name if count == 1 else f"{name} ({count})" for name, count in who.items()],
    )


def ordered(rows: Sequence[Row], order: str) -> list[Row]:
    """The rows as ``order`` says, equal ones by name."""
    return sorted(rows, key=lambda row: (-ORDERS[order](row), row.name))


def draw(rows: Sequence[Row], width: int | None = None) -> Table:
    """The rows as a table not wider than ``width``; of any width if that is None."""
    cells = {
        column: [column, *(one_line(text(row)) for row in rows)]
        for column, text in _COLUMNS.items()
        if column != "to disk" or any(row.journal_lag is not None for row in rows)
    }
    widths = {column: max(map(cell_len, texts)) for column, texts in cells.items()}
    if width is not None:
        _fit(widths, width)
    made = table(list(widths), right=set(widths) - {"name", "kind", "who"})
    for at in range(len(rows)):
        made.add_row(*(cell(clipped(cells[name][at + 1], widths[name])) for name in widths))
    for column in made.columns:
        column.header = clipped(str(column.header), widths[str(column.header)])
    return made


def _fit(widths: dict[str, int], width: int) -> None:
    """Narrow columns and leave some out until they fit."""
    widths["name"] = min(widths["name"], max(_LEAST_NAME, width // 3))
    room = width - _total({name: wide for name, wide in widths.items() if name != "who"}) - _GAP
    if room >= min(widths["who"], _LEAST_WHO):
        widths["who"] = min(widths["who"], room)
        return
    for column in _DISPENSABLE:
        if _total(widths) <= width:
            return
        widths.pop(column, None)
    if _total(widths) > width:
        del widths["visible"]
        widths["name"] = max(min(widths["name"], width - _EDGES), 1)


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1) + _EDGES


def clipped(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns of the terminal, an ellipsis where it is cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""
