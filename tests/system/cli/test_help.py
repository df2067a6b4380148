"""What ``shmq --help`` and the help of each command say, and that each example works."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import shmq
from shmq.cli.main import cli
from shmq.spark.jobs.catalog import ABOUT
from shmq.workers.ledger import Ledger
from shmq.workers.schedule import Schedule
from tests.support.shell import Shell, ended
from tests.system.cli.conftest import Quick
from tests.system.cli.test_serve import listening

Invoke = Callable[..., Result]

#: The terminal that the list of the commands fits, with a line for the next prompt.
COLUMNS, ROWS = 80, 44

HEADINGS = ["Messages", "Queues", "Streams", "Durable", "Server", "Host"]


def walk(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command below ``group`` with its words."""
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from walk(command, f"{path}{name} ")


COMMANDS = dict(walk(cli))
GROUPS = [path for path, command in COMMANDS.items() if isinstance(command, click.Group)]

#: These run until a signal ends them, and these need the files of a queue.
ENDLESS = {"console", "serve", "stream tail"}
DURABLE = ["snapshot", "backup", "restore", *(p for p in COMMANDS if p.startswith("dmsq"))]
#: These write files, or need a server, a process that replies, or a configuration.
OTHERS = {
    "persist",
    "ping",
    "request",
    # Those of a cluster: see test_cluster.py, tests/extras/nats/system/bridge and the pages.
    "bridge",
    *(path for path in COMMANDS if path.split()[0] == "cluster"),
    *(path for path in COMMANDS if path.startswith("pipeline ")),
}
PLAIN = [path for path in COMMANDS if path not in {*ENDLESS, *DURABLE, *OTHERS}]


def help_of(path: str) -> str:
    done = CliRunner().invoke(cli, [*path.split(), "--help"], terminal_width=COLUMNS)
    assert done.exit_code == 0, done.output
    return done.output


def example_of(path: str) -> str:
    epilog = COMMANDS[path].epilog or ""
    assert epilog.startswith("Example: "), f"shmq {path} has no example"
    return epilog.removeprefix("Example: ")


# -- shmq --help -----------------------------------------------------------------------


def test_the_help_fits_a_screen() -> None:
    lines = help_of("").splitlines()

    assert len(lines) < ROWS
    assert max(map(len, lines)) <= COLUMNS


def test_a_default_of_none_is_shown_as_it_is_typed() -> None:
    assert "none with auto_delete" in " ".join(help_of("create").split())


def test_every_command_is_under_a_heading_with_what_it_does() -> None:
    lines = help_of("").splitlines()
    assert [line[:-1] for line in lines if re.fullmatch(r"[A-Z]\w+:", line)] == [
        *HEADINGS,
        "Options",
    ]
    listed = lines[lines.index("Messages:") : lines.index("Options:")]
    cells = [cell for line in listed for cell in (line[2:39], line[41:]) if line[:1] == " "]
    told = {cell.split()[0]: cell[11:].strip() for cell in cells if cell.strip()}
    assert list(told) == list(cli.commands)
    assert all(told.values())


def test_a_narrow_terminal_gets_a_command_a_line() -> None:
    done = CliRunner().invoke(cli, ["--help"], terminal_width=60)
    assert re.findall(r"^  (\w+) +[A-Z]", done.output, re.MULTILINE) == list(cli.commands)


# -- the help of a command -------------------------------------------------------------


@pytest.mark.parametrize("path", list(COMMANDS))
def test_every_help_has_an_example_and_words_on_every_option(path: str) -> None:
    text = help_of(path)

    example = example_of(path)
    assert f"  Example: {example}\n" in text, "it is cut"
    words = shlex.split(example)
    assert "shmq" in " ".join(words)
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts


@pytest.mark.parametrize("path", GROUPS)
def test_what_a_subcommand_does_is_not_cut(path: str) -> None:
    listed = help_of(path).partition("Commands:")[2]
    assert "..." not in listed


# -- the examples ----------------------------------------------------------------------


@pytest.fixture
def shop(
    broker: shmq.Broker, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> shmq.Broker:
    """A namespace and a directory with what the examples name."""
    monkeypatch.chdir(tmp_path)
    Path("order.json").write_text('{"type": "object", "required": ["id"]}')
    Path("shop.py").write_text("def handle(message):\n    pass\n")
    orders = broker.create_queue("orders")
    orders.put_many(["tea", "milk"])
    Ledger(broker, orders).declare(Schedule(every=60.0), "shop:handle", now=0)
    broker.create_queue("invoices")
    broker.set_schema("invoices", {"type": "object"})
    with broker.create_stream("clicks", partitions=1) as clicks:
        clicks.append("/cart", key="alice")
        clicks.append("/pay", key="alice.mobile")
        with clicks.group("billing").join() as member:
            member.poll()
            member.commit()
    with broker.create_exchange("events", "topic") as events:
        events.bind("orders", key="order.#")
    with broker.ensure_table("results") as results:
        results.set_many({"job-0": "done", "job-2": "done"})
    assert invoke("context", "add", "staging", "--url", "shmq://127.0.0.1:1").exit_code == 0
    return broker


@pytest.mark.parametrize("path", PLAIN)
def test_the_example_works(path: str, shop: shmq.Broker, shell: Shell, quick: Quick) -> None:
    example = example_of(path)
    if re.search(r"[|>]|\$\(", example) or path in {"worker", "stress"}:
        ran = shell.pipeline(f"set -e -o pipefail\n{example}")
        assert ran.code == 0, ran
    else:
        command, *arguments = shlex.split(example)
        assert command == "shmq"
        quick(*arguments)


def test_the_examples_on_files_work(
    broker: shmq.Broker, shell: Shell, quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = shell.start(*shlex.split(example_of("persist"))[1:])
    assert writer.stderr is not None
    assert any(b"keeping" in line for line in writer.stderr)
    broker.create_queue("invoices", durability="snapshot", dead_letter=None).put("tea")
    for path in DURABLE:
        ran = quick(*shlex.split(example_of(path))[1:])
        if path == "snapshot":
            shutil.copy(ran.text.partition(" is in ")[2].rpartition(", ")[0], "invoices.dmsq")
    with broker.queue("invoices-old") as restored:
        assert restored.qsize() == 1
    writer.send_signal(signal.SIGTERM)
    assert ended(writer).code == 0


@pytest.mark.parametrize("path", sorted(ENDLESS))
def test_the_example_runs_until_it_is_stopped(
    path: str, shop: shmq.Broker, shell: Shell, invoke: Invoke
) -> None:
    running = shell.start(*shlex.split(example_of(path))[1:], stdout=subprocess.PIPE)
    if path == "serve":
        url = re.search(r"shmq://[0-9.:]+", listening(running))
        assert url
        ping = re.sub(r"shmq://\S+", url[0].rstrip(":"), example_of("ping"))
        done = invoke(*shlex.split(ping)[1:])
        assert done.exit_code == 0, done.output
    elif path == "console":
        assert running.stderr is not None
        assert b"the console is at http://127.0.0.1:" in running.stderr.readline()
    else:
        assert running.stdout is not None
        assert running.stdout.readline() == b"/cart\n"
    running.send_signal(signal.SIGTERM)
    assert ended(running).code == 0


def test_the_example_of_a_request_works(broker: shmq.Broker, invoke: Invoke) -> None:
    broker.create_queue("sums")
    stop = threading.Event()
    server = threading.Thread(
        target=broker.serve, args=("sums", lambda message: sum(message.body)), kwargs={"stop": stop}
    )
    server.start()
    try:
        done = invoke(*shlex.split(example_of("request"))[1:])
    finally:
        stop.set()
        server.join()
    assert (done.exit_code, done.output) == (0, "3\n")


def test_the_examples_of_pipelines_work(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for job in ABOUT:
        Path(f"{job}.toml").write_text(invoke("pipeline", "init", job).stdout)
        done = invoke(*shlex.split(example_of(f"pipeline {job}"))[1:])
        assert (done.exit_code, done.output) == (0, f"{job}.toml: valid for {job}\n")
    script, _, file = example_of("pipeline init").partition(" > ")
    assert (invoke(*shlex.split(script)[1:]).exit_code, file) == (0, "archive.toml")
