"""Commands about one queue: ``create``, ``purge``, ``redrive``, ``move`` and others."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import click

import shmq
from shmq.api.bulk import check_holder
from shmq.api.options import Options, QueueOptions
from shmq.cli.shared import params
from shmq.cli.shared.audited import audited
from shmq.cli.shared.flags import (
    connected,
    count_flag,
    given_options,
    json_flag,
    option_flags,
    quiet_flag,
    same_name_flag,
    yes_flag,
)
from shmq.cli.shared.names import (
    EXCHANGE,
    KINDS,
    QUEUE,
    STREAM,
    complete_names,
    complete_queues,
    kind_of,
    queue_name,
)
from shmq.cli.shared.output import (
    cell,
    clock,
    counted,
    note,
    quoted,
    show,
    show_json,
    show_table,
    table,
)
from shmq.cli.shared.progress import Progress, progress
from shmq.cli.shared.target import is_this_process, target_of, typed
from shmq.host.diagnose.users import has_users, user_of
from shmq.host.supervision.audit import Event
from shmq.model.codec.strict_json import decode_json
from shmq.native._core import MAX_NAME

T = TypeVar("T", bound=Options)


@click.command(epilog="Example: shmq create shipments --capacity 100000 --visibility-timeout 5m")
@queue_name(help=f"The same as NAME: 1 to {MAX_NAME} of A-Z a-z 0-9 . _ : -.", kind=params.text)
@option_flags(QueueOptions)
@same_name_flag("stream")
@json_flag
@connected
def create(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Make a queue, and its dead-letter queue NAME.dlq.

    Repeating the command with the same options changes nothing; other options are refused.
    Sizes are 4096, 64KiB or 16MiB; times are 30, 30s, 500ms, 5m or 2h.
    """
    wanted = given_options(flags)
    with audited(broker, Event.QUEUE_CREATE, name), broker.create_queue(name, **wanted) as queue:
        options = queue.options.as_dict()
    if as_json:
        show_json({"namespace": broker.namespace, "name": name, "options": options})
    else:
        show(f"queue {quoted(name)} is ready in namespace {broker.namespace!r}")


@click.command(epilog="Example: shmq alter orders --max-deliveries 9")
@queue_name(complete=complete_names)
@option_flags(QueueOptions, alters=True)
@json_flag
@connected
def alter(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Change options of a queue while it is in use, at once for all of its processes.

    Options that are not given stay. If one of those given cannot be changed, none is.
    """
    with broker.put_target(name) as queue:
        before = queue.options
    with audited(broker, Event.QUEUE_ALTER, name):
        options = broker.alter_queue(name, **given_options(flags))
    show_alteration(QUEUE, name, before, options, as_json=as_json)


def show_alteration(kind: str, name: str, before: T, after: T, *, as_json: bool) -> None:
    """Show what was altered of a queue or stream."""
    changes = before.differences(after)
    if as_json:
        changed = {key: {"from": old, "to": new} for key, (old, new) in changes.items()}
        show_json({kind: name, "changed": changed, "options": after.as_dict()})
    elif changes:
        texts = (f"{key} from {old} to {new}" for key, (old, new) in changes.items())
        show(f"{kind} {quoted(name)} is altered: {', '.join(texts)}")
    else:
        show(f"{kind} {quoted(name)} has these options already")


@click.command(epilog="Example: shmq delete orders --yes")
@queue_name(help="Only a queue of that name.", complete=complete_names)
@click.option(
    "--kind", type=click.Choice(KINDS), help="What NAME is; needed if several kinds have the name."
)
@yes_flag
@json_flag
@click.pass_context
@connected
def delete(
    broker: shmq.Broker,
    context: click.Context,
    name: str,
    kind: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a queue, a stream or an exchange with all its contents.

    The dead-letter queue of a queue stays, and so do the queues bound to an exchange. With -q
    only a queue is deleted.
    """
    if typed(context, "name"):
        if kind not in {None, QUEUE}:
            raise click.UsageError(f"-q names a queue: for a {kind} give its name without -q")
        kind = QUEUE
    delete_one(broker, kind or kind_of(broker, name), name, yes=yes, as_json=as_json)


def delete_one(broker: shmq.Broker, kind: str, name: str, *, yes: bool, as_json: bool) -> None:
    """Delete what has that kind and name; ask first unless ``yes``."""
    contents, remove = {
        QUEUE: (_describe_queue, broker.delete_queue),
        STREAM: (_describe_stream, broker.delete_stream),
        EXCHANGE: (_describe_exchange, broker.delete_exchange),
    }[kind]
    if not yes:
        ask_first("delete", f"Delete {kind} {quoted(name)} {contents(broker, name)}?")
    with audited(broker, Event(f"{kind}.delete"), name):
        remove(name)
    if as_json:
        show_json({"namespace": broker.namespace, "kind": kind, "deleted": name})
    else:
        show(f"{kind} {quoted(name)} is deleted")


@click.command(epilog="Example: shmq purge orders --yes")
@queue_name()
@yes_flag
@json_flag
@quiet_flag
@connected
def purge(broker: shmq.Broker, name: str, yes: bool, as_json: bool, quiet: bool) -> None:
    """Remove the waiting messages of a queue, visible and delayed.

    Leased messages stay.
    """
    with broker.queue(name) as queue:
        if not yes:
            held = counted(_count_waiting(queue), "message")
            ask_first("purge", f"Remove {held} from queue {quoted(name)}?")
        with (
            audited(broker, Event.QUEUE_PURGE, name) as details,
            _show_progress("purge", name, quiet=quiet),
        ):
            details["messages"] = purged = queue.purge()
    if as_json:
        show_json({"queue": name, "purged": purged})
    else:
        show(f"{counted(purged, 'message')} removed from queue {quoted(name)}")


def _show_progress(what: str, name: str, *, quiet: bool) -> AbstractContextManager[Progress]:
    """Show how many of the waiting messages of queue ``name`` leave it during the block.

    The call that removes them does not say: another connection asks for it.
    """
    target = target_of(click.get_current_context())

    @contextlib.contextmanager
    def asked() -> Iterator[Callable[[], tuple[int, int]]]:
        with target.connect() as broker, broker.queue(name) as queue:
            before = _count_waiting(queue)
            yield lambda: (max(before - _count_waiting(queue), 0), before)

    return progress(what, "messages", quiet=quiet, asked=asked)


def _count_waiting(queue: shmq.Queue) -> int:
    numbers = queue.stats()
    return numbers.depth + numbers.delayed


def _parse_holder(value: str) -> str:
    try:
        return check_holder(params.text(value))
    except shmq.InvalidOption as error:
        raise click.BadParameter(str(error).removeprefix("name=")) from None


@click.command(epilog="Example: shmq release orders --holder 5f0c2a9be1d34c77 --yes")
@queue_name()
@click.option(
    "--holder",
    type=_parse_holder,
    metavar="TEXT",
    required=True,
    help="The holder's name, as peek --leased shows it.",
)
@yes_flag
@json_flag
@connected
def release(broker: shmq.Broker, name: str, holder: str, yes: bool, as_json: bool) -> None:
    """Return what a streaming query has leased in its name.

    For a query that will not start again: otherwise its leases end in time. A query that still
    runs ends with an error.
    """
    with broker.queue(name) as queue:
        if not yes:
            held = f"Return what {quoted(holder)} has leased to queue {quoted(name)}?"
            ask_first("release", held)
        returned = queue.bulk().release(holder)
    if as_json:
        show_json({"queue": name, "holder": holder, "returned": returned})
    else:
        show(f"{counted(returned, 'message')} returned to queue {quoted(name)}")


def _describe_queue(broker: shmq.Broker, name: str) -> str:
    """What is deleted with the queue; the messages of a damaged one cannot be counted."""
    try:
        with broker.put_target(name) as queue:
            numbers = queue.stats()
    except (shmq.SegmentError, shmq.FileError) as error:
        return f"and all its contents ({error})"
    held = numbers.depth + numbers.delayed + numbers.in_flight
    return f"and the {counted(held, 'message')} in it"


def _describe_stream(broker: shmq.Broker, name: str) -> str:
    """What is deleted with the stream; the records of a damaged one cannot be counted."""
    try:
        with broker.stream(name) as stream:
            held = sum(found.latest - found.earliest for found in stream.offsets())
    except (shmq.SegmentError, shmq.FileError) as error:
        return f"and all its contents ({error})"
    return f"and the {counted(held, 'record')} in it"


def _describe_exchange(broker: shmq.Broker, name: str) -> str:
    with broker.exchange(name) as found:
        return f"with {counted(len(found.bindings()), 'binding')}"


def ask_first(what: str, question: str) -> None:
    """Return if the user agrees; otherwise raise."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(
            f"not a terminal, so cannot ask for confirmation to {what} it; add --yes"
        )
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


@click.command(epilog="Example: shmq who orders")
@queue_name()
@json_flag
@connected
def who(broker: shmq.Broker, name: str, as_json: bool) -> None:
    """Show the processes attached to a queue, and how many messages each has leased.

    The process of this command is left out. In the namespace of a group the user is shown, too.
    """
    with broker.put_target(name) as queue:
        attached = [one for one in queue.attachments() if not is_this_process(broker, one)]
    if as_json:
        show_json([dataclasses.asdict(one) for one in attached])
        return
    if not attached:
        note(f"no process is attached to queue {quoted(name)}")
        return
    users = ["user"] if has_users(broker) else []
    made = table([*users, "pid", "name", "leases", "since", "alive"], right=("pid", "leases"))
    for one in attached:
        user = [user_of(one.pid)] if users else []
        row = (one.pid, one.name, one.leases, clock(one.since), "yes" if one.alive else "no")
        made.add_row(*(cell(value) for value in (*user, *row)))
    show_table(made)


@click.command(epilog='Example: shmq redrive orders --where "age < 2h"')
@queue_name(help="The same as NAME: the queue, or its dead-letter queue.")
@count_flag("Send back at most COUNT.  [default: all]")
@click.option(
    "--where",
    metavar="EXPR",
    help="Only dead letters for which EXPR is true; @FILE reads EXPR from FILE. "
    "See docs/reference/cli.md.",
)
@click.option(
    "--row",
    "rows",
    type=params.WholeRange(min=1),
    multiple=True,
    metavar="N",
    help="Only row N of a FILE written by shmq pipeline triage; may be repeated.",
)
@json_flag
@quiet_flag
@connected
def redrive(
    broker: shmq.Broker,
    name: str,
    count: int | None,
    where: str | None,
    rows: Sequence[int],
    as_json: bool,
    quiet: bool,
) -> None:
    """Send dead letters back to the queue that they came from."""
    expression = _read_expression(where, rows)
    with (
        audited(broker, Event.QUEUE_REDRIVE, name, where=expression) as details,
        broker.queue(name) as queue,
        _show_progress("redrive", queue.options.dead_letter or name, quiet=quiet),
    ):
        details["messages"] = redriven = queue.redrive(count, where=expression)
    if as_json:
        show_json({"queue": name, "redriven": redriven})
    else:
        show(f"{counted(redriven, 'dead letter')} sent back")


@click.command(epilog="Example: shmq move orders --to invoices")
@queue_name()
@click.option(
    "--to",
    "target",
    type=params.name,
    required=True,
    metavar="QUEUE",
    shell_complete=complete_queues,
    help="The queue that gets the messages.",
)
@count_flag("Move at most COUNT.  [default: all]")
@click.option(
    "--where",
    metavar="EXPR",
    help="Only messages for which EXPR is true. See docs/reference/cli.md.",
)
@json_flag
@quiet_flag
@connected
def move(
    broker: shmq.Broker,
    name: str,
    target: str,
    count: int | None,
    where: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Move visible messages to another queue, each exactly once.

    Leased and delayed messages stay; it says how many.
    """
    with (
        audited(broker, Event.QUEUE_MOVE, name, to=target, where=where) as details,
        broker.queue(name) as queue,
        _show_progress("move", name, quiet=quiet),
    ):
        details["messages"] = moved = queue.move_to(target, count, where=where)
        left = queue.stats()
    if as_json:
        counts = {"depth": left.depth, "delayed": left.delayed, "in_flight": left.in_flight}
        show_json({"queue": name, "to": target, "moved": moved, **counts})
        return
    show(f"{counted(moved, 'message')} moved to queue {quoted(target)}")
    if stay := left.depth + left.delayed + left.in_flight:
        note(
            f"{counted(stay, 'message')} left in {quoted(name)}: {left.depth:,} visible, "
            f"{left.delayed:,} delayed, {left.in_flight:,} in flight"
        )


def _read_expression(where: str | None, rows: Sequence[int]) -> str | None:
    """The expression of the command line, or of the file that it names."""
    if where is None or not where.startswith("@"):
        if rows:
            raise click.UsageError(
                "--row needs a file written by shmq pipeline triage: add --where @FILE"
            )
        return where
    path = Path(where[1:])
    if where == "@":
        raise click.UsageError("--where @: name a file after the @")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(f"--where {where}: cannot be read: {reason}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--where {where}: the file is not UTF-8: {error}") from None
    if text.lstrip().startswith("{"):
        return _join_triage_rows(where, text, rows)
    if rows:
        raise click.UsageError(f"--row: {path} is an expression and has no rows: drop --row")
    return text


def _join_triage_rows(where: str, text: str, rows: Sequence[int]) -> str:
    """The rows of a triage as one expression: true where any of them is."""
    try:
        found: Any = decode_json(text)["rows"]
        known = {int(row["row"]): str(row["where"]) for row in found}
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f"--where {where}: this file was not written by shmq pipeline triage: "
            f"{type(error).__name__}: {error}"
        ) from None
    missing = [row for row in rows if row not in known]
    if missing or not known:
        has = f"it has {', '.join(map(str, known))}" if known else "it has none"
        raise click.UsageError(f"--where {where}: no row {missing[0] if missing else 1}: {has}")
    return " or ".join(f"({known[row]})" for row in rows or known)
