"""``shmq pipeline``: jobs on Spark, each configured by a TOML file."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shmq.cli.shared import params
from shmq.cli.shared.flags import Group
from shmq.cli.shared.output import duration, show
from shmq.cli.shared.progress import progress
from shmq.cli.shared.target import target_of
from shmq.errors import InvalidOption
from shmq.host.supervision.signals import Stop
from shmq.native._core import reserve_standard
from shmq.spark.jobs import catalog as jobs

if TYPE_CHECKING:
    from shmq.spark.jobs.config import Base
    from shmq.spark.jobs.job import Job, Progress

#: A logger that has it prints nothing.
_SILENT: Final = logging.NullHandler()

#: The configuration of Spark's log4j.
_LOGGING: Final = """
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss,SSS}} spark %p %c{{1}}: %m%n%ex
"""


@click.group(cls=Group, epilog="Example: shmq pipeline init archive > archive.toml")
def pipeline() -> None:
    """Run a job on Spark, configured by a TOML file, until it is done or stopped.

    Ctrl-C and SIGTERM let the current batch be finished; a second one does not. Started
    again, a job continues where it stopped.
    """


@pipeline.command(epilog="Example: shmq pipeline init archive > archive.toml")
@click.argument("job", metavar="JOB", type=click.Choice(list(jobs.ABOUT)))
def init(job: str) -> None:
    """Print a configuration file for JOB that explains each key."""
    show(jobs.template(job).rstrip("\n"))


def _make_command(name: str) -> click.Command:
    """The command that runs the job of that name."""

    @click.command(
        name,
        help=f"{jobs.ABOUT[name]}\n\nshmq pipeline init {name} prints a CONFIG to start with.",
        epilog=f"Example: shmq pipeline {name} {name}.toml --check",
    )
    @click.argument("config", type=params.FilePath(path_type=Path, dir_okay=False))
    @click.option("--check", is_flag=True, help="Only check the file, SQL included; run nothing.")
    @click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
    def run(config: Path, check: bool, quiet: bool) -> None:
        _run(name, config, check=check, quiet=quiet)

    return run


for _name in jobs.ABOUT:
    pipeline.add_command(_make_command(_name))


def _run(name: str, path: Path, *, check: bool, quiet: bool) -> None:
    _add_current_directory()
    job = jobs.load(name)
    config = job.read(path.absolute(), _place(click.get_current_context()))
    if check:
        if config.has_sql:
            _check_sql(path, job, config)
        show(f"{path}: valid for {name}")
        return
    from shmq.spark.jobs.runner import end, run, started  # noqa: PLC0415

    with _logging(config.spark.log), _show_progress(name, quiet=quiet) as report:
        spark = started(job, config)
        stop = Stop()
        try:
            with stop:  # only now, as Spark's start sets a handler of its own
                done = run(job, config, spark, report, lambda: bool(stop.signal))
        except KeyboardInterrupt:
            click.get_current_context().exit(128 + (stop.signal or signal.SIGINT))
        finally:
            end(spark)
    ended = "stopped" if stop.signal else "done"
    parts = [f"{done.rows:,} rows", *(f"{count:,} {what}" for what, count in done.counts.items())]
    show(f"{name}: {ended}, {', '.join(parts)}")


def _check_sql(path: Path, job: Job[Any], config: Base) -> None:
    from shmq.spark.jobs.runner import end, started  # noqa: PLC0415

    with _logging(config.spark.log):
        session = started(job, config)
        try:
            config.check_sql(session)
        except InvalidOption as error:
            raise InvalidOption(f"{path}: {error}") from error
        finally:
            end(session)


def _place(context: click.Context) -> Mapping[str, str]:
    """The place of the command as options of the format, for tables without one."""
    target = target_of(context)
    if target.origin is None:
        return {}
    place = target.place
    if place.url is None:
        return {"url": target.namespace}
    said = {
        "url": place.url,
        "token": place.token,
        "tlsCa": place.cafile,
        "tlsCertificate": place.cert,
        "tlsKey": place.key,
    }
    return {key: value for key, value in said.items() if value is not None}


def _add_current_directory() -> None:
    """Make modules of the current directory importable, here and in Spark's processes."""
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, *known]))


@contextlib.contextmanager
def _logging(level: str) -> Iterator[None]:
    """Set the log level of a Spark that starts in the block, unless the environment does.

    Py4J logs each error of a connection with its stack trace, through the root logger and from
    threads that outlive the block: with "off" that stays silent up to the end of the process.
    """
    if level == "off":
        logging.getLogger().addHandler(_SILENT)
    reserve_standard()
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the umask
        file.write(_LOGGING.format(level=level))
        file.flush()
        os.environ.setdefault("LOG4J_CONFIGURATION_FILE", file.name)
        yield


@contextlib.contextmanager
def _show_progress(name: str, *, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """The function that shows how far a job is."""
    with progress(name, "", quiet=quiet) as on_progress:
        on_progress(0, text="starting Spark")

        def report(done: Progress) -> None:
            total = None if done.backlog is None else done.rows + done.backlog
            on_progress(done.rows, total, text=_format_line(done))

        yield report


def _format_line(done: Progress) -> str:
    """``batch 12, 1,200,000 rows, 41,000 rows/s, backlog 300, 2.5 s a batch``."""
    parts = [f"{done.rows:,} rows", f"{done.rate:,.0f} rows/s"]
    if done.batch is not None:
        parts.insert(0, f"batch {done.batch}")
    if done.backlog is not None:
        parts.append(f"backlog {done.backlog:,}")
    if done.batch is not None:
        parts.append(f"{duration(done.seconds)} a batch")
    parts += (f"{count:,} {what}" for what, count in done.counts.items())
    if done.waiting:
        parts.append(f"waiting: {done.waiting}")
    return ", ".join(parts)
