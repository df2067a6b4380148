"""``shmq doctor``: find what is stale and, if asked to, remove it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from shmq.api.names import check_name
from shmq.cli.shared import params
from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag
from shmq.cli.shared.output import (
    amount,
    cell,
    clock,
    counted,
    note,
    show,
    show_json,
    show_table,
    table,
)
from shmq.diagnose.leftovers import Finding, namespaces, sweep
from shmq.diagnose.machine import Condition, conditions
from shmq.diagnose.segments import Segment, segments
from shmq.errors import InvalidOption
from shmq.namespace.data_directory import chosen_directory
from shmq.namespace.namespace import Namespace
from shmq.storage.aside import FileSetAside, files_aside

__all__ = ["doctor"]


@click.command(short_help="Find and remove what the dead have left.")
@click.option("--fix", is_flag=True, help="Remove what is stale; nothing that is in use.")
@click.option(
    "--timeout",
    type=params.seconds,
    default="30s",
    metavar="TIME",
    show_default=True,
    help="How long the look at one queue may take.",
)
@json_flag
@click.pass_context
def doctor(context: click.Context, fix: bool, timeout: float, as_json: bool) -> None:
    """Find what dead processes have left, and what is wrong with the machine.

    In all namespaces of this user, or in the one that is named. What is in use is never
    touched; a queue that is damaged is reported, and left to shmq delete. Files that are set
    aside on disk are listed, with what restores and what removes them.
    """
    names, others = _asked_for(context)
    found = [one for name in names for one in sweep(name, fix, timeout)]
    lying = [one for name in names for one in segments(name)]
    machine = conditions()
    aside = [row for name in names for row in _aside(name, found)]
    if as_json:
        show_json(
            {
                "namespaces": names,
                "found": [dataclasses.asdict(one) for one in found],
                "segments": [dataclasses.asdict(one) for one in lying],
                "aside": aside,
                "environment": [dataclasses.asdict(one) for one in machine],
            }
        )
    else:
        _show(names, found, lying, machine)
        if aside:
            _show_aside(aside)
    if others:
        note(f"{counted(others, 'file')} of other users left alone")
    wrong = any(not one.fixed for one in found) or any(one.problem for one in machine)
    context.exit(Code.WRONG if wrong else Code.OK)


def _asked_for(context: click.Context) -> tuple[list[str], int]:
    """The namespaces to look at, and how many files of other users there are in all."""
    target = target_of(context)
    if target.origin is None:
        return namespaces()
    return [check_name(target.namespace, "namespace")], 0


def _aside(namespace: str, found: list[Finding]) -> list[dict[str, Any]]:
    """What is set aside in the namespace's data directory; to ``found`` that it cannot be read."""
    try:
        directory = Namespace.of(namespace).data_dir or chosen_directory(namespace)
    except InvalidOption:
        return []  # it has no data directory
    try:
        every = files_aside(directory)
    except OSError as error:
        where = error.filename or directory
        what = f"it cannot be read, so what is set aside there is not known: {error.strerror}"
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
            "restore": _restoring(namespace, one) if one.restorable else None,
            "remove": shlex.join(
                ["rm", *["-r"] * (one.kind == "stream"), *(str(directory / f) for f in one.files)]
            ),
        }
        for one in every
    ]


def _restoring(namespace: str, one: FileSetAside) -> str:
    return shlex.join(["shmq", "-n", namespace, "restore", "--aside", one.file])


def _show_aside(aside: Sequence[Mapping[str, Any]]) -> None:
    made = table(["namespace", "set aside of", "name", "bytes", "written", "why"], right=("bytes",))
    for one in aside:
        row = (one["namespace"], one["kind"], one["name"], amount(one["bytes"]))
        made.add_row(*(cell(value) for value in (*row, clock(one["written"]), one["why"])))
    show_table(made)
    for one in aside:
        show(f"{one['kind']} {one['name']}, {one['file']}:")
        show(f"  {one['restore'] or 'nothing can be brought back of it'}")
        show(f"  {one['remove']}")


def _show(
    names: list[str], found: list[Finding], lying: list[Segment], machine: list[Condition]
) -> None:
    made = table(["environment", "value", "problem"], right=("value",))
    for fact in machine:
        value = amount(int(fact.value)) if "bytes" in fact.name else fact.value
        made.add_row(cell(fact.name), cell(value), cell(fact.problem or ""))
    show_table(made)
    if lying:
        _show_segments(lying)
    if found:
        made = table(["namespace", "kind", "name", "what", "removed"])
        for one in found:
            row = (one.namespace, one.kind, one.name, one.what, "yes" if one.fixed else "no")
            made.add_row(*(cell(value) for value in row))
        show_table(made)
        if any(not one.fixed for one in found):
            note("what is stale is removed by shmq doctor --fix; an unusable queue, by shmq delete")
    else:
        show(f"nothing is stale in {counted(len(names), 'namespace')}")


def _show_segments(lying: list[Segment]) -> None:
    numbers = ("layout", "owner", "mode", "size", "taken")
    made = table(["namespace", "queue", *numbers], right=numbers)
    for one in lying:
        version = "none" if one.layout_version is None else f"{one.layout_version}"
        layout = version if one.ours else f"{version} (not ours)"
        row = (one.namespace, one.queue, layout, one.owner, one.mode)
        made.add_row(*(cell(value) for value in (*row, amount(one.size), amount(one.taken))))
    show_table(made)
