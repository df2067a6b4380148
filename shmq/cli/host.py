"""``shmq doctor``, ``fsck`` and ``keeper``: the state of this host."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from shmq.api.names import check_name, group_of, shown_name
from shmq.cli.shared import params
from shmq.cli.shared.audited import audited
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import all_flag, json_flag, log_format_flag, namespace_of
from shmq.cli.shared.names import queue_names
from shmq.cli.shared.output import (
    also_shown,
    amount,
    cell,
    clock,
    counted,
    is_shortened,
    note,
    on_a_terminal,
    shorten,
    show,
    show_json,
    show_table,
    table,
)
from shmq.cli.shared.progress import Progress, progress
from shmq.cli.shared.target import target_of
from shmq.disk.storage.inventory import unrecovered
from shmq.disk.storage.set_aside import FileSetAside, files_aside
from shmq.errors import InvalidOption, WrongDirectory
from shmq.host.diagnose.leftovers import Finding, namespaces, sweep
from shmq.host.diagnose.machine import Condition, conditions
from shmq.host.diagnose.segments import (
    MISSING,
    SOUND,
    UNCHECKED,
    Segment,
    SegmentReport,
    examine,
    segments,
)
from shmq.host.diagnose.streams import examine_files
from shmq.host.diagnose.tables import examine_tables
from shmq.host.namespace.data_directory import directory_of
from shmq.host.namespace.folder import user_name
from shmq.host.namespace.namespace import Namespace
from shmq.host.supervision.audit import Event
from shmq.host.supervision.signals import Stop
from shmq.host.supervision.stderr import default_log_format, show_on_stderr
from shmq.server.keeper import Keeper

log = logging.getLogger("shmq")


@click.command(epilog="Example: shmq doctor --fix")
@click.option("--fix", is_flag=True, help="Remove what is left behind; nothing that is in use.")
@all_flag
@click.option(
    "--timeout",
    type=params.seconds,
    default="30s",
    metavar="TIME",
    show_default=True,
    help="How long the check of one queue may take.",
)
@json_flag
@click.pass_context
def doctor(context: click.Context, fix: bool, every: bool, timeout: float, as_json: bool) -> None:
    """Find what dead processes have left behind, and problems of this host.

    It checks all namespaces of this user and its groups, or the one named with -n. Nothing in use
    is changed. A damaged queue is reported; delete it with shmq delete. Files that are set aside
    on disk are listed with the commands that restore and remove them.
    """
    _require_time("--timeout", timeout)
    names, others = _select_namespaces(context)
    found = [one for name in names for one in _sweep(name, fix, timeout, as_json)]
    checked = [one for name in names for one in segments(name)]
    machine = conditions()
    aside = [row for name in names for row in _list_set_aside(name, found)]
    if as_json:
        show_json(
            {
                "namespaces": names,
                "found": [also_shown(dataclasses.asdict(one)) for one in found],
                "segments": [also_shown(dataclasses.asdict(one), "queue") for one in checked],
                "aside": aside,
                "environment": [dataclasses.asdict(one) for one in machine],
            }
        )
    else:
        _show(names, found, checked, machine, every)
        if aside:
            _show_aside(aside)
    if others:
        note(f"{counted(others, 'file')} of other users left alone")
    wrong = any(not one.fixed for one in found) or any(one.problem for one in machine)
    context.exit(Code.WRONG if wrong else Code.OK)


def _sweep(name: str, fix: bool, timeout: float, as_json: bool) -> list[Finding]:
    with _progress(f"doctor: {shown_name(name)}", as_json) as shown:
        if not fix:
            return sweep(name, fix, timeout, shown)
        with audited(name, Event.LEFTOVERS_REMOVE, "") as details:
            found = sweep(name, fix, timeout, shown)
            details["removed"] = sum(one.fixed for one in found)
        return found


def _progress(what: str, as_json: bool) -> AbstractContextManager[Progress]:
    """A bar on a terminal, and none in a script. The checks fork."""
    quiet = as_json or not on_a_terminal()
    return progress(what, "queues", quiet=quiet, lines=False, forks=True)


def _select_namespaces(context: click.Context) -> tuple[list[str], int]:
    """The namespaces to check, and the number of files of other users."""
    target = target_of(context)
    if target.origin is None:
        return namespaces()
    return [check_name(target.namespace, "namespace")], 0


def _list_set_aside(namespace: str, found: list[Finding]) -> list[dict[str, Any]]:
    """The files set aside in the data directory.

    ``found`` gets what was not recovered there; if the directory cannot be read, it gets that.
    """
    try:
        directory = directory_of(Namespace.of(namespace))
    except InvalidOption:
        return []  # it has no data directory
    except WrongDirectory as error:
        found.append(
            Finding(
                namespace=namespace, kind="directory", name=error.named, what=str(error),
                fixed=False,
            )
        )  # fmt: skip
        directory = Path(error.own)
    try:
        for kind, name, why in unrecovered(directory, Namespace.of(namespace).has):
            found.append(
                Finding(namespace=namespace, kind=kind, name=name, what=str(why), fixed=False)
            )
        every = files_aside(directory)
    except OSError as error:
        where = error.filename or directory
        what = f"it cannot be read, so the files set aside there are unknown: {error.strerror}"
        found.append(
            Finding(namespace=namespace, kind="file", name=str(where), what=what, fixed=False)
        )
        return []
    return [
        {
            "namespace": namespace,
            "kind": one.kind,
            "name": one.name,
            "file": one.file,
            "files": [str(directory / file) for file in one.files],
            "bytes": one.bytes,
            "written": one.written,
            "why": one.why,
            "restore": _format_restore_command(namespace, one) if one.restorable else None,
            "remove": shlex.join(
                ["rm", *["-r"] * (one.kind == "stream"), *(str(directory / f) for f in one.files)]
            ),
        }
        for one in every
    ]


def _format_restore_command(namespace: str, one: FileSetAside) -> str:
    return shlex.join(["shmq", "-n", namespace, "restore", "--aside", one.file])


def _show_aside(aside: Sequence[Mapping[str, Any]]) -> None:
    made = table(["namespace", "set aside of", "name", "bytes", "written", "why"], right=("bytes",))
    for one in aside:
        row = (one["namespace"], one["kind"], shown_name(one["name"]), amount(one["bytes"]))
        made.add_row(*(cell(value) for value in (*row, clock(one["written"]), one["why"])))
    show_table(made)
    for one in aside:
        show(f"{one['kind']} {shown_name(one['name'])}, {one['file']}:")
        show(f"  {one['restore'] or 'nothing of it can be restored'}")
        show(f"  {one['remove']}")


def _show(
    names: list[str],
    found: list[Finding],
    checked: list[Segment],
    machine: list[Condition],
    every: bool,
) -> None:
    made = table(["environment", "value", "problem"], right=("value",))
    for fact in machine:
        value = amount(int(fact.value)) if "bytes" in fact.name else fact.value
        made.add_row(cell(fact.name), cell(value), cell(fact.problem or ""))
    show_table(made)
    if checked:
        _show_segments(checked, every)
    if found:
        made = table(["namespace", "kind", "name", "what", "removed"])
        for one in shorten(found, every, "finding"):
            removed = "yes" if one.fixed else "no"
            row = (one.namespace, one.kind, shown_name(one.name), one.what, removed)
            made.add_row(*(cell(value) for value in row))
        show_table(made)
        if any(not one.fixed for one in found):
            note("shmq doctor --fix removes what is left behind, shmq delete a damaged queue")
    else:
        show(f"nothing is left behind in {counted(len(names), 'namespace')}")


def _show_segments(checked: list[Segment], every: bool) -> None:
    numbers = ("layout", "owner", "mode", "size", "taken")
    made = table(["namespace", "queue", *numbers], right=numbers)
    if is_shortened(len(checked), every):
        taken = amount(sum(one.taken for one in checked))
        show(f"{counted(len(checked), 'queue')}, {taken} of memory taken")
        checked = sorted(checked, key=lambda one: (one.ours, -one.taken))
    for one in shorten(checked, every, "queue"):
        version = "none" if one.layout_version is None else f"{one.layout_version}"
        layout = version if one.ours else f"{version} (not ours)"
        owner = one.owner if group_of(one.namespace) is None else user_name(one.owner)
        row = (one.namespace, shown_name(one.queue), layout, owner, one.mode)
        made.add_row(*(cell(value) for value in (*row, amount(one.size), amount(one.taken))))
    show_table(made)


@click.command(epilog="Example: shmq fsck orders")
@queue_names
@all_flag
@click.option(
    "--timeout",
    type=params.seconds,
    default="30s",
    metavar="TIME",
    show_default=True,
    help="How long the check of one queue may take.",
)
@json_flag
@click.pass_context
def fsck(
    context: click.Context, names: tuple[str, ...], every: bool, timeout: float, as_json: bool
) -> None:
    """Check every invariant of queues; change nothing.

    Without a NAME it checks every queue and table of the namespace, and reads all records in the
    files of its durable streams. They may be in use.
    """
    _require_time("--timeout", timeout)
    namespace = namespace_of(context)
    # Not the broker's list: making it removes queues that are half made.
    checked = names or Namespace.of(namespace).queue_names()
    found = []
    with _progress("fsck", as_json) as shown:
        for one in examine(namespace, checked, timeout):
            found.append(one)
            shown(len(found), len(checked))
    if not names:
        found = [one for one in found if one.state != MISSING]  # deleted in the meantime
        found += examine_files(namespace)
        found += examine_tables(namespace)
    if as_json:
        show_json([also_shown(dataclasses.asdict(one)) for one in found])
    elif found:
        _show_examined(found, every)
    else:
        note(f"namespace {namespace!r} has no queues")
    context.exit(_choose_exit_code(found))


def _show_examined(found: list[SegmentReport], every: bool) -> None:
    if is_shortened(len(found), every):
        states = collections.Counter(one.state for one in found)
        show(", ".join(f"{number:,} {state}" for state, number in states.most_common()))
        found = [one for one in found if one.state != SOUND]
        if not found:
            return
    made = table(["queue", "state", *(["problem"] if any(one.problems for one in found) else [])])
    for one in shorten(found, every, "problem"):
        for line in one.problems or [""]:
            row = (shown_name(one.name), one.state, line)
            made.add_row(*(cell(value) for value in row[: len(made.columns)]))
    show_table(made)


def _require_time(flag: str, seconds: float) -> None:
    if not seconds > 0:
        raise click.BadParameter("it must be more than 0", param_hint=f"'{flag}'")


def _choose_exit_code(found: list[SegmentReport]) -> Code:
    states = {one.state for one in found}
    if states <= {SOUND}:
        return Code.OK
    if not states <= {SOUND, MISSING, UNCHECKED}:
        return Code.SEGMENT
    return Code.NO_SPACE if UNCHECKED in states else Code.NO_QUEUE


@click.command(epilog="Example: shmq keeper --once")
@click.option(
    "--interval",
    type=params.seconds,
    default="50ms",
    metavar="TIME",
    show_default=True,
    help="The time between two checks.",
)
@click.option("--once", is_flag=True, help="Check once, and end.")
@log_format_flag
@click.pass_context
def keeper(context: click.Context, interval: float, once: bool) -> None:
    """Expire leases, delays and TTLs on time in queues that no process uses, until stopped.

    Queues in use need no keeper. It also returns messages that dead processes had leased.
    """
    _require_time("--interval", interval)
    namespace = namespace_of(context)
    kept = Keeper(namespace, interval)
    with Stop() as stop, contextlib.closing(kept):
        kept.tend()
        if once:
            return
        if default_log_format() == "text":
            note(f"keeping namespace {namespace!r}; Ctrl-C or SIGTERM ends it")
        else:
            show_on_stderr("shmq")
            log.info("keeping namespace %r; Ctrl-C or SIGTERM ends it", namespace)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                with stop.interruptible():
                    time.sleep(interval)
                kept.tend()
