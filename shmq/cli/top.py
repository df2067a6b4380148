"""``shmq top``: what every queue and stream of a namespace is doing, drawn again and again."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import shmq
from shmq.api.names import group_of, shown_name
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.keyboard import LEAST_INTERVAL, can_be_redrawn, until_left
from shmq.cli.shared.names import EXCHANGE, KINDS, QUEUE, STREAM, kinds_flag
from shmq.cli.shared.output import (
    age,
    also_shown,
    cell,
    counted,
    note,
    on_a_terminal,
    one_line,
    show_json,
    show_table,
    table,
)
from shmq.cli.shared.table import Table
from shmq.host.diagnose.activity import Observer, QueueActivity, StreamActivity
from shmq.host.diagnose.users import user_of


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
    #: The messages in its dead-letter queue now.
    dead_letters: int = 0
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
    "dead": lambda row: row.dead_letters,
}


def _to_disk(row: Row) -> str:
    if row.journal_lag is None:
        return ""
    return f"{row.journal_lag:,}" + ("!" if row.unkept else "")


#: The columns, in the order in which they stand.
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "name": lambda row: shown_name(row.name),
    "kind": lambda row: row.kind,
    "visible": lambda row: f"{row.depth:,}" if row.kind != EXCHANGE else "",
    "oldest": lambda row: age(row.oldest_age) if row.depth else "",
    "in flight": lambda row: f"{row.in_flight:,}" if row.kind == QUEUE else "",
    "delayed": lambda row: f"{row.delayed:,}" if row.kind == QUEUE else "",
    "in/s": lambda row: f"{row.rate_in:,.0f}" if row.kind != EXCHANGE else "",
    "out/s": lambda row: f"{row.rate_out:,.0f}" if row.kind == QUEUE else "",
    "dead": lambda row: f"{row.dead_letters:,}" if row.kind == QUEUE else "",
    "to disk": _to_disk,
    "waiting": lambda row: f"{row.waiting:,}" if row.kind == QUEUE else "",
    "who": lambda row: ", ".join(row.who),
}

#: The columns to leave out if there is not enough room, in this order.
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


def look(observer: Observer, kinds: Sequence[str] = ()) -> list[Row]:
    """A row for each queue, stream and exchange, also for one that cannot be used.

    Of the ``kinds``, or of all if those are empty.
    """
    seen = observer.look(kinds)
    held = {
        one.name: one.stats.depth + one.stats.delayed + one.stats.in_flight
        for one in seen.queues
        if one.stats is not None
    }
    return [
        *(_make_queue_row(one, held, group_of(seen.namespace) is not None) for one in seen.queues),
        *map(_make_stream_row, seen.streams),
        *(Row(name=one.name, kind=EXCHANGE, problem=one.problem) for one in seen.exchanges),
    ]


def _make_queue_row(doing: QueueActivity, held: Mapping[str, int], users: bool) -> Row:
    stats = doing.stats
    if stats is None:
        return Row(name=doing.name, problem=doing.problem)
    letters = doing.options.dead_letter if doing.options is not None else None
    who = collections.Counter(
        f"{f'{user_of(one.pid)}:' if users else ''}{one.name} {one.pid}"
        for one in doing.attachments
        if one.alive
    )
    return Row(
        name=stats.name,
        depth=stats.depth,
        oldest_age=stats.oldest_age,
        in_flight=stats.in_flight,
        delayed=stats.delayed,
        rate_in=stats.rate_in,
        rate_out=stats.rate_out,
        dead_letters=held.get(letters, 0) if letters is not None else 0,
        journal_lag=None if stats.durability == "memory" else stats.journal_lag,
        unkept=doing.journal_problem,
        waiting=stats.waiting_get + stats.waiting_put,
        who=[name if count == 1 else f"{name} ({count})" for name, count in who.items()],
    )


def _make_stream_row(doing: StreamActivity) -> Row:
    return Row(
        name=doing.name,
        kind=STREAM,
        depth=doing.records,
        oldest_age=doing.oldest_age,
        rate_in=doing.rate_in,
        problem=doing.problem,
    )


def ordered(rows: Sequence[Row], order: str) -> list[Row]:
    """The rows as ``order`` says, equal ones by name."""
    return sorted(rows, key=lambda row: (-ORDERS[order](row), row.name))


def _lay_out(rows: Sequence[Row], width: int | None) -> tuple[dict[str, list[str]], dict[str, int]]:
    """The cells of all columns, and the widths of those that fit."""
    cells = {
        column: [column, *(one_line(text(row)) for row in rows)]
        for column, text in _COLUMNS.items()
        if column != "to disk" or any(row.journal_lag is not None for row in rows)
    }
    widths = {column: max(map(cell_len, texts)) for column, texts in cells.items()}
    if width is not None:
        _fit(widths, width)
    return cells, widths


def left_out(rows: Sequence[Row], width: int) -> str | None:
    """A text with the columns that do not fit into ``width``; None if all do."""
    cells, widths = _lay_out(rows, width)
    hidden = [name for name in cells if name not in widths]
    return f"no room for {', '.join(hidden)}: a wider window shows them" if hidden else None


def draw(rows: Sequence[Row], width: int | None = None) -> Table:
    """The rows as a table not wider than ``width``; of any width if that is None."""
    cells, widths = _lay_out(rows, width)
    heads = {name: clipped(name, wide) for name, wide in widths.items()}
    right = {head for name, head in heads.items() if name not in {"name", "kind", "who"}}
    made = table(list(heads.values()), right=right)
    for at in range(len(rows)):
        made.add_row(*(cell(clipped(cells[name][at + 1], widths[name])) for name in widths))
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


#: The lines around the rows: the title, and what the table has above and below them.
_AROUND = 5


@click.command(epilog="Example: shmq top --sort depth")
@click.option(
    "--interval",
    type=params.seconds,
    default="1s",
    metavar="TIME",
    show_default=True,
    help="The time between two updates.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="name",
    show_default=True,
    help="Sort by this column, the largest value first.",
)
@click.option("--once", is_flag=True, help="Print once and end; the default without a terminal.")
@kinds_flag
@json_flag
@click.pass_context
@connected
def top(
    broker: shmq.Broker,
    context: click.Context,
    interval: float,
    order: str,
    once: bool,
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what every queue and stream is doing, until q is pressed.

    The columns are depth, age of the oldest message, messages in flight, rates, messages in the
    dead-letter queue now and attached processes. The key s sorts by the next column.
    """
    if interval < LEAST_INTERVAL:
        raise click.BadParameter(
            f"{interval:g} s is less than {LEAST_INTERVAL:g} s", param_hint="'--interval'"
        )
    with Observer(broker, groups=False) as observer:
        if as_json:
            rows = ordered(look(observer, kinds), order)
            show_json([also_shown(dataclasses.asdict(row)) for row in rows])
        elif once or not can_be_redrawn():
            _print(observer, broker.namespace, order, kinds)
        else:
            context.exit(_redraw(observer, broker.namespace, interval, order, kinds))


def _print(observer: Observer, namespace: str, order: str, kinds: Sequence[str]) -> None:
    rows = ordered(look(observer, kinds), order)
    sound = [row for row in rows if row.problem is None]
    if sound:
        width = Console().width if on_a_terminal() else None
        show_table(draw(sound, width))
        if width is not None and (hidden := left_out(sound, width)) is not None:
            note(hidden)
    for row in rows:
        if row.problem is not None or row.unkept is not None:
            note(f"{shown_name(row.name)}: {row.problem or row.unkept}")
    if not rows:
        note(f"namespace {namespace!r} has no queues")


def _redraw(
    observer: Observer, namespace: str, interval: float, order: str, kinds: Sequence[str]
) -> int:
    """Draw until a key or a signal says so; the exit code."""
    console = Console(emoji=False, markup=False, highlight=False)
    live = Live(console=console, screen=True, auto_refresh=False)
    orders = list(ORDERS)

    def show_anew(key: str) -> None:
        nonlocal order
        if key == "s":
            order = orders[(orders.index(order) + 1) % len(orders)]
        rows = ordered(look(observer, kinds), order)
        live.update(_build_frame(namespace, rows, order, console), refresh=True)

    return until_left(live, interval, show_anew)


def _build_frame(namespace: str, rows: list[Row], order: str, console: Console) -> Group:
    """All that the screen shows, cut to its size."""
    width, height = console.size
    sound = [row for row in rows if row.problem is None]
    problems = {shown_name(row.name): row.problem or row.unkept for row in rows}
    wrong = [f"{name}: {problem}" for name, problem in problems.items() if problem is not None]
    lines = wrong[: height // 3]
    if (hidden := left_out(sound, width)) is not None:
        lines.append(hidden)
    room = height - _AROUND - len(lines)
    if len(sound) > room:
        room = max(room - 1, 1)
        lines.insert(0, f"{len(sound) - room} more: a taller window shows them")
    title = (
        f"shmq {namespace}  {time.strftime('%H:%M:%S')}  {_format_counts(rows)}  "
        f"by {order}  s: sort  q: quit"
    )
    return Group(
        Text(clipped(title, width)),
        draw(sound[:room], width).as_rich(),
        *(Text(clipped(one_line(line), width)) for line in lines),
    )


def _format_counts(rows: Sequence[Row]) -> str:
    """``3 queues``, and how many of the others there are, if there are any."""
    every = collections.Counter(row.kind for row in rows)
    kinds = [kind for kind in KINDS if every[kind] or kind == QUEUE]
    return ", ".join(counted(every[kind], kind) for kind in kinds)
