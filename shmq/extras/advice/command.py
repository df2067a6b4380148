"""``shmq advise``: which queue or other system suits a workload, and with which options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag, plot_flag, quiet_flag
from shmq.cli.shared.names import complete_queues
from shmq.cli.shared.output import (
    cell,
    lines,
    note,
    on_a_terminal,
    one_line,
    show,
    show_json,
    show_table,
    table,
)
from shmq.cli.shared.plot import drawn_to
from shmq.cli.shared.progress import progress
from shmq.cli.shared.target import target_of
from shmq.extras.advice import plot as plots
from shmq.extras.advice.load import ASSUMPTIONS
from shmq.extras.advice.measurement import measure
from shmq.extras.advice.question import QUESTIONS, Question
from shmq.extras.advice.report import Advice
from shmq.extras.advice.report import advise as advise_on
from shmq.extras.advice.text import default_of, read_text, read_workload, template
from shmq.extras.advice.workload import ANSWERS, Workload
from shmq.units import size

_LONGEST_LOOK: Final = 3600.0


@click.command(epilog="Example: shmq advise --defaults --code")
@click.argument(
    "file", required=False, type=params.FilePath(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--from-queue", metavar="NAME", type=params.name, shell_complete=complete_queues,
    help="Measure a live queue, and ask only the rest.",
)  # fmt: skip
@click.option(
    "--seconds", type=params.seconds, metavar="TIME", help="How long to measure it.  [default: 60s]"
)
@click.option("--defaults", is_flag=True, help="Ask nothing: take the defaults.")
@click.option("--template", "as_template", is_flag=True, help="Print a FILE with all defaults.")
@click.option(
    "--name", type=params.name, default="jobs", metavar="NAME", show_default=True,
    help="The name that --code uses.",
)  # fmt: skip
@click.option(
    "--cores", type=params.WholeRange(1, 4096), metavar="N",
    help="Cores of the consumers' hosts.  [default: this host's]",
)  # fmt: skip
@click.option("--code", is_flag=True, help="Print the program and the command that makes it.")
@plot_flag("Draw the wait over the load")
@quiet_flag
@json_flag
@click.pass_context
def advise(
    context: click.Context,
    /,
    file: Path | None,
    from_queue: str | None,
    seconds: float | None,
    defaults: bool,
    as_template: bool,
    **how: Any,
) -> None:
    """Say which queue suits a workload, each option with its reason, or what to use instead.

    The workload is asked in twelve questions, or read from FILE in TOML (see --template), where
    what is absent has its default. The exit code is 10 if another system suits it better.
    """
    if as_template:
        show(template())
        return
    if seconds is not None and from_queue is None:
        raise click.UsageError(
            "--seconds is the time to measure a queue: say which with --from-queue"
        )
    given = read_workload(file) if file is not None else {}
    options: Mapping[str, Any] = {}
    if from_queue is not None:
        length = 60.0 if seconds is None else seconds
        seen, options = _measure_queue(context, from_queue, length, quiet=how["quiet"])
        given = {**seen, **given}
    if file is None and not defaults:
        given = _ask_answers(given)
    try:
        workload = Workload.of(given)
    except shmq.InvalidOption as error:
        where = "" if file is None else f"{file}: "
        raise shmq.InvalidOption(f"{where}{error}") from None
    _print_advice(context, advise_on(workload, how["cores"]), options, how)


def _measure_queue(
    context: click.Context, name: str, seconds: float, *, quiet: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a live queue answers, and its options."""
    if not 0 < seconds <= _LONGEST_LOOK:
        raise click.UsageError(f"--seconds is up to {_LONGEST_LOOK:g}, not {seconds:g}")
    with target_of(context).connect() as broker, broker.queue(name) as queue:
        with progress("measure", "", quiet=quiet) as on_progress:
            found = measure(queue, seconds, on_progress)
        options = queue.options.as_dict()
    seen = ", ".join(f"{key} {value:.6g}" for key, value in found.answers.items())
    note(f"measured {name!r} for {found.seconds:.0f} s: {seen or 'nothing came or went'}")
    for remark in found.remarks:
        note(remark)
    return found.answers, options


def _ask_answers(given: dict[str, Any]) -> dict[str, Any]:
    """The given answers, and those to the questions that are left."""
    found = dict(given)
    for number, question in enumerate(QUESTIONS, 1):
        wanted = [name for name in question.answers if name not in given]
        if wanted:
            found |= _ask(number, question, wanted, found)
    return found


def _ask(
    number: int, question: Question, wanted: list[str], found: Mapping[str, Any]
) -> dict[str, Any]:
    """One line: an answer after the other; those left out have their defaults."""
    click.echo(f"\n{number}. {question.text}  ({question.why})", err=True)
    for name in wanted:
        choices = ANSWERS[name].choices
        listed = f": {', '.join(choices)}" if choices else ""
        click.echo(f"   {name}: {ANSWERS[name].text}{listed}", err=True)
    default = " ".join(default_of(name, found) for name in wanted)

    def read(line: str) -> dict[str, Any]:
        words = line.split()
        if len(words) > len(wanted):
            raise click.BadParameter(f"{len(words)} answers, and {len(wanted)} are asked for")
        try:
            # Answers with their defaults are left out, so that they follow the others.
            answers = {
                name: read_text(name, word)
                for name, word in zip(wanted, words, strict=False)
                if word != default_of(name, found)
            }
            Workload.of({**found, **answers})
        except shmq.InvalidOption as error:
            raise click.BadParameter(one_line(str(error))) from None
        return answers

    try:
        answers: dict[str, Any] = click.prompt(
            "  ", default=default, value_proc=read, prompt_suffix=" ", err=True
        )
    except UnicodeDecodeError:
        click.echo(err=True)  # the error has a line of its own
        raise
    except click.Abort as stop:
        if not isinstance(stop.__context__, EOFError):
            raise
        click.echo(err=True)
        raise click.UsageError(
            f"the answers ended at question {number} of {len(QUESTIONS)}: answer each with a line, "
            f"which may be empty, or take the defaults with --defaults"
        ) from None
    return answers


def _print_advice(
    context: click.Context, advice: Advice, options: Mapping[str, Any], how: dict[str, Any]
) -> None:
    def draw(path: Path) -> None:
        plots.figure(advice.plan.load, advice.workload.peak_rate, path)

    with drawn_to(how["plot"], draw):
        _print(advice, options, how)
    context.exit(Code.OK if advice.is_shmq else Code.WRONG)


def _print(advice: Advice, options: Mapping[str, Any], how: dict[str, Any]) -> None:
    if how["as_json"]:
        show_json(advice.as_dict(how["name"]))
    elif how["code"]:
        show(advice.python(how["name"]))
        for line in advice.shell(how["name"]).splitlines():
            show(f"# {line}")
        if not advice.is_shmq:
            note(advice.verdict())
    else:
        _show(advice, options)


def _show_settings(advice: Advice, options: Mapping[str, Any]) -> None:
    """A row for each; on a terminal its reasons stand in one column, which is wide enough."""
    stacked = on_a_terminal()
    reasons = ["because"] if stacked else ["because", "rule", "set otherwise"]
    now = ["now"] if options else []
    made = table(["setting", "value", *now, *reasons], right=("value", "now"))
    made.wrapped = len(reasons)
    for setting in advice.settings:
        values = [
            cell(setting.name),
            cell(setting.shown),
            *(cell(options.get(setting.name, "")) for _ in now),
        ]
        if stacked:
            made.add_row(*values, lines(f"{setting.trigger}; {setting.reason}", setting.fault))
        else:
            made.add_row(*values, *map(cell, (setting.trigger, setting.reason, setting.fault)))
    show_table(made)


def _show(advice: Advice, options: Mapping[str, Any]) -> None:
    show(advice.verdict())
    for one in advice.alternatives:
        if not one.instead:
            show(f"Or {one.name}: {one.reason}.")
    _show_settings(advice, options)
    for warning in advice.warnings:
        show(f"! {warning}")
    show(f"\nMemory when the backlog is as planned: {size(advice.memory)} of /dev/shm")
    for line in (*advice.theory(), *ASSUMPTIONS):
        show(line)
    bars = plots.text(advice.plan.load, advice.workload.peak_rate)
    if bars:
        show("\nmean wait over the load:")
    for bar in bars:
        show(bar)
