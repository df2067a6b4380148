"""The command line of the demonstration."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

import shmq
from examples.flights import archive, report
from examples.flights.console import FlightsConsole
from examples.flights.errors import DemoError
from examples.flights.flights import airline_names, packaged, read_flights
from examples.flights.job import Outcome, run
from examples.flights.plan import Plan
from examples.flights.plot import draw
from examples.flights.screen import screen_for
from examples.flights.tally import Sums

_COUNT = click.IntRange(1, 64)


@click.command()
@click.option("--flights", type=click.IntRange(min=1), help="Only the first N flights.")
@click.option("--producers", type=_COUNT, default=2, show_default=True)
@click.option("--consumers", type=click.IntRange(0, 64), default=3, show_default=True)
@click.option(
    "--remote",
    type=click.IntRange(0, 64),
    default=1,
    show_default=True,
    help="Consumers beside those that come over TCP.",
)
@click.option(
    "--kill/--no-kill",
    default=True,
    help="Whether a consumer is killed, and later a front end of the server.",
)
@click.option(
    "--lose/--no-lose",
    default=True,
    help="Whether the queues are kept on disk, and all shared memory is lost half-way.",
)
@click.option(
    "--groups/--no-groups",
    default=True,
    help="Whether the flights go through a stream, too, which two groups read.",
)
@click.option(
    "--spark/--no-spark",
    default=True,
    help="Whether Spark archives the flights at the end, and adds up their delays.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("delays.png"),
    show_default=True,
    help="Where the picture of the delays is written.",
)
@click.option(
    "--console/--no-console",
    "page",
    default=False,
    help="Whether shmq console shows the queues in a browser meanwhile.",
)
@click.option(
    "--cluster/--no-cluster",
    default=False,
    help="Whether the flights are forwarded to three servers of NATS, too, and one is killed.",
)
@click.option("--quiet", is_flag=True, help="Show what happens, but not how far it is.")
@click.option("--namespace", help="Where its queues are made.  [default: demo-PID]")
def main(
    flights: int | None,
    producers: int,
    consumers: int,
    remote: int,
    kill: bool,
    lose: bool,
    groups: bool,
    spark: bool,
    plot: Path,
    page: bool,
    cluster: bool,
    quiet: bool,
    namespace: str | None,
) -> None:
    """Send 336,776 real flights through one queue, and lose its memory half-way.

    At the end Spark takes them out of the queue, and draws their delays.

    Exit code 0 says that every flight was acknowledged and that the sums are the
    file's, 1 that they are not or that the job could not be done.
    """
    _check(consumers, remote, kill, plot if spark else None)
    if spark and (lacking := archive.missing()):
        click.echo(f"without Spark: {lacking}")
        spark = False
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        path, names = packaged("flights.csv.zip"), airline_names(packaged("airlines.csv"))
        table = list(read_flights(path, limit=flights))
        expected = report.direct_sums(table)
        plan = Plan(
            path=path,
            flights=len(table),
            namespace=namespace or f"demo-{os.getpid()}",
            producers=producers,
            consumers=consumers,
            remote=remote,
            kill=kill,
            lose=lose,
            groups=groups,
            archive=spark,
            cluster=cluster,
        )
        delays = report.direct_delays(table) if groups or spark else {}
        with _shown(plan.namespace) if page else contextlib.nullcontext():
            sys.exit(_perform(plan, expected, delays, names, plot, quiet=quiet))
    except (DemoError, shmq.ShmqError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("stopped; the queues of the demonstration are deleted", err=True)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGTERM, before)


def _check(consumers: int, remote: int, kill: bool, plot: Path | None) -> None:
    """Raise :class:`click.UsageError` for options that exclude each other."""
    if not consumers + remote:
        raise click.UsageError("nobody consumes: give --consumers or --remote")
    if kill and (consumers == 0 or consumers + remote == 1):
        raise click.UsageError(
            "there is no consumer on this host to kill, or nobody is left then: add --no-kill"
        )
    if plot is not None and not plot.parent.is_dir():
        raise click.UsageError(f"there is no folder {plot.parent}: choose another with --plot")


def conclude(
    console: Console,
    outcome: Outcome,
    expected: dict[str, Sums],
    names: dict[str, str],
    delays: dict[tuple[str, int], Sums],
) -> int:
    """Print the table and the verdict; returns the exit code."""
    console.print(report.table(outcome.ledger.carriers, names))
    found = report.faults(outcome, expected)
    if outcome.grouped is not None:
        found += report.group_faults(outcome.grouped, delays)
    if outcome.clustered is not None:
        found += report.cluster_faults(outcome.clustered, expected)
    if outcome.archived is not None:
        found += report.archive_faults(outcome.archived, delays)
    for fault in found:
        click.echo(f"check failed: {fault}", err=True)
    if not found:
        console.print(report.verdict(outcome), soft_wrap=True, highlight=False)
    return 1 if found else 0


def _perform(
    plan: Plan,
    expected: dict[str, Sums],
    delays: dict[tuple[str, int], Sums],
    names: dict[str, str],
    plot: Path,
    *,
    quiet: bool,
) -> int:
    console = Console()
    console.print(
        f"{plan.flights:,} flights of {len(expected)} carriers: {plan.producers} producers, "
        f"{plan.consumers} consumers, {plan.remote} over TCP, namespace {plan.namespace}",
        soft_wrap=True,
        highlight=False,
    )
    with screen_for(console, quiet=quiet) as screen:
        outcome = run(plan, screen)
    code = conclude(console, outcome, expected, names, delays)
    if outcome.archived is not None and not code:
        try:
            draw(outcome.archived.delays, names, plot)
        except OSError as error:
            raise DemoError(f"the picture cannot be written: {error}") from error
        console.print(f"mean delays by carrier and hour: {plot}", soft_wrap=True, highlight=False)
    return code


@contextlib.contextmanager
def _shown(namespace: str) -> Iterator[None]:
    """Show the queues in a browser during the block."""
    with FlightsConsole(namespace) as console:
        click.echo(f"the queues are shown at {console.url}")
        yield


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
