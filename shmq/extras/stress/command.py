"""``shmq stress``: producers and consumers on a queue, verified and measured."""

from __future__ import annotations

import csv
import dataclasses
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from shmq.cli.shared import params
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag, plot_flag, quiet_flag
from shmq.cli.shared.names import queue_name
from shmq.cli.shared.output import cell, counted, duration, note, show_json, show_table, table
from shmq.cli.shared.plot import drawn_to
from shmq.cli.shared.progress import Progress, progress
from shmq.cli.shared.target import target_of
from shmq.extras.stress import plot as plots
from shmq.extras.stress.plan import LEAST_SIZE, PARTS, Plan, Result, Sample
from shmq.extras.stress.run import run
from shmq.host.supervision.signals import Stop
from shmq.native._core import reserve_standard

Watch = Callable[[Sample], None]

_MOST_WORKERS = 500
_LARGEST = 1 << 30

#: The columns of --csv.
_COLUMNS = (
    *("seconds", "put", "got", "put_per_second", "got_per_second", "backlog", "killed"),
    *(f"{part}_us" for part in (*PARTS, "max")),
)


@click.command(epilog="Example: shmq stress --producers 1 --consumers 1 --messages 1000")
@click.option(
    "-p", "--producers", type=params.WholeRange(1, _MOST_WORKERS), default=2, metavar="N",
    show_default=True, help="Processes that put.",
)  # fmt: skip
@click.option(
    "-c", "--consumers", type=params.WholeRange(1, _MOST_WORKERS), default=2, metavar="N",
    show_default=True, help="Processes that take.",
)  # fmt: skip
@click.option(
    "--duration", type=params.seconds, metavar="TIME", help="Put messages for TIME.  [default: 5s]"
)
@click.option(
    "--messages", type=params.WholeRange(min=1), metavar="N", help="Put N messages instead."
)
@click.option(
    "--size", type=params.size, default="64", metavar="SIZE", show_default=True,
    help=f"Bytes of a body, at least {LEAST_SIZE}.",
)  # fmt: skip
@click.option(
    "--batch", type=params.WholeRange(1, 65536), default=1, metavar="N", show_default=True,
    help="Messages per call.",
)  # fmt: skip
@click.option("--kill", is_flag=True, help="Kill consumers at random and replace them.")
@click.option(
    "--grouped", is_flag=True, help="Put each producer's messages in a group of their own."
)
@click.option(
    "--seed", type=params.whole, metavar="N", help="Seed of the random kills, to repeat a run."
)
@queue_name(
    required=False,
    help="The same as NAME: an empty queue.  [default: a new one, deleted at the end]",
)
@click.option(
    "--csv", "csv_path", metavar="FILE", help="Write a row of numbers to FILE every second."
)
@plot_flag("Draw rates, backlog and latencies")
@json_flag
@quiet_flag
@click.pass_context
def stress(
    context: click.Context,
    /,
    name: str | None,
    duration: float | None,
    seed: int | None,
    csv_path: str | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: int,
) -> None:
    """Run producers and consumers on a queue, and verify that no message is lost or duplicated.

    It shows rates, and percentiles of the time from put to get.
    """
    plan = _make_plan(duration, secrets.randbits(32) if seed is None else seed, **flags)
    samples: list[Sample] = []
    with (
        drawn_to(plot, lambda path: plots.figure(samples, path)),
        Stop() as stop,
        _csv(csv_path) as write,
        progress("stress", "", quiet=quiet, forks=True) as on_progress,
    ):
        draw = _draw(on_progress, plan)

        def watch(sample: Sample) -> None:
            write(sample)
            samples.append(sample)
            draw(sample)

        try:
            result = run(target_of(context).connect, name, plan, watch, lambda: bool(stop.signal))
        except KeyboardInterrupt:
            context.exit(128 + (stop.signal or signal.SIGINT))
    if as_json:
        show_json(dataclasses.asdict(result))
    else:
        _show(result)
    for problem in result.problems:
        note(problem)
    context.exit(Code.WRONG if result.problems else Code.OK)


def _make_plan(duration: float | None, seed: int, **flags: int) -> Plan:
    messages, size = flags.pop("messages"), flags.pop("size")
    if duration is not None and messages is not None:
        raise click.UsageError("--duration and --messages exclude each other: give one of them")
    if duration is not None and duration <= 0:
        raise click.BadParameter(
            f"{duration:g}: a run of no time checks nothing; give more than 0",
            param_hint="'--duration'",
        )
    if not LEAST_SIZE <= size <= _LARGEST:
        raise click.BadParameter(
            f"{size} bytes: a body has {LEAST_SIZE} to {_LARGEST}", param_hint="'--size'"
        )
    seconds = None if messages is not None else 5.0 if duration is None else duration
    kill, grouped = bool(flags.pop("kill")), bool(flags.pop("grouped"))
    return Plan(
        seconds=seconds, messages=messages, size=size, kill=kill, grouped=grouped, seed=seed,
        **flags,
    )  # fmt: skip


@contextmanager
def _csv(path: str | None) -> Iterator[Watch]:
    """The function that writes a sample as a row of the file."""
    if path is None:
        yield lambda _: None
        return
    try:
        reserve_standard()
        with open(path, "w", newline="") as file:  # noqa: PTH123 - a path as it was given
            yield _write_rows(file)
    except OSError as error:
        if error.filename != path:
            raise
        raise click.ClickException(f"cannot write {path!r}: {error.strerror}") from error


def _write_rows(file: TextIO) -> Watch:
    writer = csv.writer(file)
    writer.writerow(_COLUMNS)

    def write(sample: Sample) -> None:
        values = dataclasses.asdict(sample)
        row = [values[column] for column in _COLUMNS if column in values]
        writer.writerow([_round(value) for value in (*row, *sample.latency.values())])
        file.flush()

    return write


def _round(value: float) -> float:
    return value if isinstance(value, int) else round(value, 3)


def _draw(on_progress: Progress, plan: Plan) -> Watch:
    """The function that shows a sample."""

    def draw(sample: Sample) -> None:
        text = (
            f"put {sample.put_per_second:,.0f}/s, got {sample.got_per_second:,.0f}/s, "
            f"backlog {sample.backlog:,}, killed {sample.killed}"
        )
        if plan.seconds is None:
            on_progress(sample.got, plan.messages, text=text)
        else:
            on_progress(sample.seconds, plan.seconds, text=text)

    return draw


def _show(result: Result) -> None:
    made = table(["stress", "value"], right=("value",))
    rows = {
        "queue": result.queue,
        "processes": f"{counted(result.producers, 'producer')}, "
        f"{counted(result.consumers, 'consumer')}",
        "body": f"{result.size} bytes, {result.batch} in a call",
        "verified": result.promise if not result.problems else "no: see below",
        "put": f"{result.put:,}",
        "put rate": f"{result.put_per_second:,.0f}/s",
        "got rate": f"{result.got_per_second:,.0f}/s",
        "consumers killed": f"{result.killed:,}",
        "delivered again": f"{result.redelivered:,}",
        **{
            f"put to get, {part.replace('_', '.')}": duration(value / 1e6)
            for part, value in result.latency.items()
        },
    }
    for key, value in rows.items():
        made.add_row(cell(key), cell(value))
    show_table(made)
