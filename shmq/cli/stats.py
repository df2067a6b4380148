"""``shmq list`` and ``shmq stats``: queues, streams and exchanges in numbers."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

import shmq
from shmq.api.names import dead_letter_source, shown_name
from shmq.api.options import QueueOptions, options_of
from shmq.cli.shared import params
from shmq.cli.shared.exit_codes import Code, code_of, describe
from shmq.cli.shared.flags import all_flag, connected, count_flag, json_flag
from shmq.cli.shared.names import (
    EXCHANGE,
    KINDS,
    QUEUE,
    STREAM,
    complete_names,
    found_of,
    kind_of,
    kinds_flag,
    queue_name,
)
from shmq.cli.shared.output import (
    WORST,
    age,
    also_shown,
    amount,
    cell,
    counted,
    is_shortened,
    name_cell,
    note,
    one_line,
    shorten,
    show,
    show_json,
    show_table,
    table,
)
from shmq.cli.shared.target import typed
from shmq.host.diagnose.journal_problem import journal_problem

_IN_BYTES: Final = {
    *(name for name, row in options_of(QueueOptions).items() if row.kind == "bytes"),
    *("arena_used", "arena_largest_free", "shm_bytes", "journal_bytes"),
}
_IN_SECONDS: Final = {
    *(name for name, row in options_of(QueueOptions).items() if row.kind == "seconds"),
    *("oldest_age", "snapshot_age"),
}
_PER_SECOND = ("rate_in", "rate_out")
#: How the names of the totals by reason begin, which a table shows only if they are not 0.
_BY_REASON: Final = ("dead_lettered_", "dropped_")
#: How many messages --errors reads, unless the command says otherwise.
_MOST_READ: Final = 10_000
#: How many queues are looked at for what needs attention, those with most messages.
_CANDIDATES: Final = 1000
#: A row as JSON, and its problem.
_Measured = tuple[dict[str, Any], str | None]
#: What is raised for what was deleted since it was listed.
_GONE: Final = (
    shmq.NoSuchQueue,
    shmq.QueueDeleted,
    shmq.NoSuchStream,
    shmq.StreamDeleted,
    shmq.NoSuchExchange,
)


@click.command(epilog="Example: shmq stats orders")
@queue_name(required=False, help="Only a queue of that name.", complete=complete_names)
@kinds_flag
@click.option(
    "--watch", "watched", is_flag=True, help="Show rates and depths again and again until Ctrl-C."
)
@click.option(
    "--interval",
    type=params.seconds,
    metavar="TIME",
    help="The time between two looks; with --watch.  [default: 1s]",
)
@click.option(
    "--errors",
    "by_error",
    is_flag=True,
    help="Show the dead letters and the failed messages of a queue by their error.",
)
@count_flag(f"Read at most COUNT messages; with --errors.  [default: {_MOST_READ}]")
@all_flag
@json_flag
@click.pass_context
@connected
def stats(
    broker: shmq.Broker,
    context: click.Context,
    name: str | None,
    kinds: tuple[str, ...],
    watched: bool,
    interval: float | None,
    by_error: bool,
    count: int | None,
    every: bool,
    as_json: bool,
) -> None:
    """Show depths, rates, totals and memory of one queue, stream or exchange, or of all.

    With a NAME it shows the options too. --watch shows the last minute of queues and streams.
    """
    if count is not None and not by_error:
        raise click.UsageError("--count is for --errors")
    if by_error:
        from shmq.cli.failures import report  # noqa: PLC0415 - it loads the language of --where

        report(broker, _name_queue(name, kinds, watched), count or _MOST_READ, as_json=as_json)
        return
    if interval is not None:
        _check_interval(interval, watched)
    if name is not None and typed(context, "name"):
        kinds = (QUEUE,)
    if watched:
        from shmq.cli.watch import watch  # noqa: PLC0415 - rich, which other commands do without

        if name is not None:
            kinds = (kinds[0] if len(kinds) == 1 else kind_of(broker, name, kinds),)
        context.exit(watch(broker, name, kinds, interval or 1.0, as_json=as_json))
    if name is not None:
        _report_one(broker, name, kinds, as_json)
        return
    failed = [Code.OK]
    by_kind = {kind: list(_measure_each(broker, kind, kinds, failed)) for kind in KINDS}
    if as_json:
        show_json([one for every in by_kind.values() for one, _ in every])
    else:
        for kind, measured in by_kind.items():
            _show_all(kind, measured, every)
    context.exit(failed[-1])


def _check_interval(interval: float, watched: bool) -> None:
    from shmq.cli.shared.keyboard import LEAST_INTERVAL  # noqa: PLC0415 - with --interval alone

    if not watched or interval < LEAST_INTERVAL:
        raise click.UsageError(
            f"--interval is for --watch, and {LEAST_INTERVAL:g}s or more, not {interval:g}s"
        )


def _name_queue(name: str | None, kinds: tuple[str, ...], watched: bool) -> str:
    if name is None or watched or set(kinds) - {QUEUE}:
        raise click.UsageError("--errors needs the name of a queue, and no --watch")
    return name


def _report_one(broker: shmq.Broker, name: str, kinds: tuple[str, ...], as_json: bool) -> None:
    kind = kinds[0] if len(kinds) == 1 else kind_of(broker, name, kinds)
    one, wrong = _MEASURES[kind](broker, name)
    if as_json:
        show_json(one)
    else:
        _show_one(one)
        _warn(name, wrong)


def _measure_each(
    broker: shmq.Broker, kind: str, kinds: Sequence[str], failed: list[Code]
) -> Iterator[_Measured]:
    """Each that can be read; ``failed`` gets what the others end the command with."""
    for summary in found_of(broker, kind, kinds):
        try:
            yield _MEASURES[kind](broker, summary.name)
        except _GONE:
            continue
        except shmq.ShmqError as error:
            note(describe(error))
            failed.append(code_of(error))


def _queue(broker: shmq.Broker, name: str) -> _Measured:
    with broker.put_target(name) as queue:
        numbers, options = queue.stats(), queue.options
    row = {"kind": QUEUE, **dataclasses.asdict(numbers), "options": options.as_dict()}
    return also_shown(row), journal_problem(numbers)


def _measure_stream(broker: shmq.Broker, name: str) -> _Measured:
    from shmq.host.diagnose.activity import stream_activity  # noqa: PLC0415 - for streams alone

    with broker.stream(name) as stream:
        doing = stream_activity(stream)
        row = {
            "kind": STREAM,
            "name": name,
            "partitions": stream.options.partitions,
            "records": doing.records,
            "oldest_age": doing.oldest_age,
            "rate_in": doing.rate_in,
            "groups": len(stream.groups()),
            "options": stream.options.as_dict(),
        }
    return also_shown(row), None


def _exchange(broker: shmq.Broker, name: str) -> _Measured:
    for found in broker.list_exchanges():
        if found.name == name:
            return _exchange_as_dict(found), None
    raise shmq.NoSuchExchange.of(name, f"in namespace {broker.namespace!r}")


_MEASURES: Final = {QUEUE: _queue, STREAM: _measure_stream, EXCHANGE: _exchange}
#: The columns of the table of each kind, and the numbers in them.
_COLUMNS: Final = {
    QUEUE: {
        "visible": "depth",
        "delayed": "delayed",
        "in flight": "in_flight",
        "oldest": "oldest_age",
        "in": "rate_in",
        "out": "rate_out",
        "put": "put",
        "acked": "acked",
        "dead letters": "dead_lettered",
        "arena used": "arena_used",
    },
    STREAM: {
        "partitions": "partitions",
        "records": "records",
        "oldest": "oldest_age",
        "in": "rate_in",
        "groups": "groups",
    },
    EXCHANGE: {"type": "type", "bindings": "bindings", "alternate": "alternate"},
}


def _show_one(one: dict[str, Any]) -> None:
    apart = {"name", "shown", "options", "errors"}
    numbers = {
        key: value
        for key, value in one.items()
        if key not in apart and (value or not key.startswith(_BY_REASON))
    }
    errors = {name: f"{count:,}" for name, count in one.get("errors", {}).items()}
    for heading, values in (
        (shown_name(one["name"]), _format_all(numbers)),
        ("errors", errors),
        ("options", _format_all(one.get("options", {}))),
    ):
        if not values:
            continue
        made = table([heading, "value"], right=("value",))
        for key, value in values.items():
            made.add_row(cell(key), cell(value))
        show_table(made)


def _show_all(kind: str, every: list[_Measured], shows_all: bool) -> None:
    if not every:
        return
    if is_shortened(len(every), shows_all):
        if kind == QUEUE:
            every = sorted(every, key=_rank_row, reverse=True)
        every = list(shorten(every, shows_all, kind))
    columns = _COLUMNS[kind]
    made = table([kind, *columns], right=columns)
    for one, _ in every:
        values = (_format(key, one[key]) for key in columns.values())
        made.add_row(name_cell(one["name"]), *(cell(value) for value in values))
    show_table(made)
    for one, wrong in every:
        _warn(one["name"], wrong)


def _rank_row(measured: _Measured) -> tuple[bool, float, int]:
    """The larger, the worse: not written to disk, then as `shmq.host.diagnose.worst.rank_queue`."""
    one, wrong = measured
    return wrong is not None, one["oldest_age"], one["depth"]


def _warn(name: str, wrong: str | None) -> None:
    """Say what is wrong with a queue's disk, where that can be missed in a table."""
    if wrong is not None:
        note(f"{shown_name(name)}: {wrong}")


def _format_all(values: dict[str, Any]) -> dict[str, str]:
    return {key.replace("_", " "): _format(key, value) for key, value in values.items()}


def _format(key: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key in _IN_BYTES:
        return amount(value)
    if key in _IN_SECONDS:
        return age(value)
    if key in _PER_SECOND:
        return f"{value:,.1f}/s"
    return f"{value:,}" if isinstance(value, int) else shown_name(str(value))


#: What makes one of each kind.
_MAKE: Final = {
    QUEUE: "shmq create NAME",
    STREAM: "shmq stream create NAME",
    EXCHANGE: "shmq exchange create NAME",
}


@click.command("list", epilog="Example: shmq list --kind queue --kind stream")
@click.option(
    "--names", is_flag=True, help="Print only the names of queues, one per line; this is fast."
)
@kinds_flag
@all_flag
@json_flag
@connected
def list_all(
    broker: shmq.Broker, as_json: bool, every: bool, kinds: tuple[str, ...], names: bool
) -> None:
    """List the queues with their depths, the streams and the exchanges.

    On a terminal, more than 100 become totals and the 20 queues that need attention most.
    """
    if names:
        _show_names(broker, kinds, as_json)
        return
    queues = found_of(broker, QUEUE, kinds)
    streams = found_of(broker, STREAM, kinds)
    exchanges = found_of(broker, EXCHANGE, kinds)
    if as_json:
        show_json(
            [
                *(also_shown({"kind": QUEUE, **dataclasses.asdict(one)}) for one in queues),
                *(also_shown({"kind": STREAM, **dataclasses.asdict(one)}) for one in streams),
                *(_exchange_as_dict(one) for one in exchanges),
            ]
        )
    elif is_shortened(len(queues) + len(streams) + len(exchanges), every):
        _show_totals(queues, streams, exchanges)
        _show_worst(broker, queues)
        _show([], shorten(streams, every, "stream"), shorten(exchanges, every, "exchange"))
    elif queues or streams or exchanges:
        _show(queues, streams, exchanges)
    else:
        wanted = kinds or (QUEUE,)
        none = " and no ".join(f"{kind}s" for kind in wanted)
        note(f"namespace {broker.namespace!r} has no {none}: make one with {_MAKE[wanted[0]]}")
    _note_unrecovered(broker)


def _note_unrecovered(broker: shmq.Broker) -> None:
    """Note what is on disk and could not be recovered, if the queues are of this host."""
    from shmq.client.local.broker import LocalBroker  # noqa: PLC0415 - not for those of a server

    if isinstance(broker, LocalBroker):
        for why in broker.find_unrecovered():
            note(why)


def _show_names(broker: shmq.Broker, kinds: tuple[str, ...], as_json: bool) -> None:
    if any(kind != QUEUE for kind in kinds):
        raise click.UsageError("--names lists queues: drop --kind, or use --kind queue")
    names = broker.queue_names()
    if as_json:
        show_json(names)
    else:
        for name in names:
            show(one_line(name))


def _show_totals(
    queues: Sequence[shmq.QueueSummary],
    streams: Sequence[shmq.StreamSummary],
    exchanges: Sequence[shmq.ExchangeSummary],
) -> None:
    made = table(["", "total"], right=("total",))
    for what, total in (
        ("queues", len(queues)),
        ("visible", sum(one.depth for one in queues)),
        ("delayed", sum(one.delayed for one in queues)),
        ("in flight", sum(one.in_flight for one in queues)),
        ("streams", len(streams)),
        ("records", sum(one.records for one in streams)),
        ("exchanges", len(exchanges)),
        (
            "cannot be used",
            sum(one.problem is not None for one in queues)
            + sum(one.problem is not None for one in streams),
        ),
    ):
        if total or what in {"queues", "visible"}:
            made.add_row(what, f"{total:,}")
    show_table(made)


def _show_worst(broker: shmq.Broker, queues: Sequence[shmq.QueueSummary]) -> None:
    """The queues that need attention most, with what is wrong with them."""
    from shmq.client.local.broker import LocalBroker  # noqa: PLC0415 - for very many queues alone
    from shmq.host.diagnose.activity import MOST_REMOTE, Observer  # noqa: PLC0415
    from shmq.host.diagnose.worst import find_worst  # noqa: PLC0415

    most = _CANDIDATES if isinstance(broker, LocalBroker) else MOST_REMOTE
    with Observer(broker, groups=False) as observer:
        worst = find_worst(observer.look((QUEUE,), _choose_candidates(queues, most)), WORST)
    numbers = ("visible", "in flight", "oldest")
    made = table(["queue", *numbers, "needs attention"], right=numbers)
    made.wrapped = 1
    for one, finding in worst:
        reason = finding.text if finding else one.problem or ""
        if one.stats is not None and (finding or one.stats.depth):
            row = (one.stats.depth, one.stats.in_flight, age(one.stats.oldest_age), reason)
            made.add_row(name_cell(one.name), *map(cell, row))
        elif one.stats is None:
            made.add_row(name_cell(one.name), *[""] * len(numbers), cell(reason))
    if made.rows:
        show_table(made)
    note(f"showing {len(made.rows)} of {counted(len(queues), 'queue')}: --all shows every one")


def _choose_candidates(queues: Sequence[shmq.QueueSummary], most: int) -> set[str]:
    """The queues that are looked at more closely, which takes ten times as long as a list."""
    chosen = heapq.nlargest(most, queues, key=_rank_summary)
    names = {one.name for one in chosen if one.problem is not None or _count_held(one)}
    # The findings about a queue of dead letters need the one that they come from.
    known = {one.name for one in queues}
    return names | (known & {dead_letter_source(name) for name in names})


def _rank_summary(one: shmq.QueueSummary) -> tuple[bool, bool, int]:
    held = _count_held(one)
    return one.problem is not None, held >= one.capacity, held


def _count_held(one: shmq.QueueSummary) -> int:
    return one.depth + one.delayed + one.in_flight


def _show(
    queues: Sequence[shmq.QueueSummary],
    streams: Sequence[shmq.StreamSummary],
    exchanges: Sequence[shmq.ExchangeSummary],
) -> None:
    rows: list[list[Any]] = [
        [one.name, QUEUE, one.depth, one.delayed, one.in_flight, one.capacity, "", one.problem]
        for one in queues
    ]
    rows += (
        [one.name, STREAM, one.records, "", "", "", _summarize_stream(one), one.problem]
        for one in streams
    )
    rows += (
        [one.name, EXCHANGE, "", "", "", "", _summarize_exchange(one), ""] for one in exchanges
    )
    numbers = ("visible", "delayed", "in flight", "capacity")
    columns = ["name", "kind", *numbers, "also", "problem"]
    shown = [
        at
        for at, column in enumerate(columns)
        if column not in {"also", "problem"} or any(row[at] for row in rows)
    ]
    if not rows:
        return
    made = table([columns[at] for at in shown], right=numbers)
    for name, *rest in rows:
        row = [shown_name(name), *rest]
        made.add_row(*(cell("" if row[at] is None else row[at]) for at in shown))
    show_table(made)


def _summarize_stream(one: shmq.StreamSummary) -> str:
    partitions = counted(one.partitions, "partition")
    return f"{partitions}, {amount(one.bytes)}, {one.durability}"


def _summarize_exchange(one: shmq.ExchangeSummary) -> str:
    unrouted = f", {one.unrouted} unrouted" if one.unrouted else ""
    return f"{one.kind}, {counted(one.bindings, 'binding')}{unrouted}"


def _exchange_as_dict(found: shmq.ExchangeSummary) -> dict[str, Any]:
    """An exchange as JSON has it; ``type`` is the kind of exchange."""
    return also_shown(
        {
            "kind": EXCHANGE,
            "name": found.name,
            "type": found.kind,
            "alternate": found.alternate,
            "bindings": found.bindings,
            "published": found.published,
            "unrouted": found.unrouted,
        }
    )
