"""The command on the queues of a server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import shmq
from shmq.cli.main import cli
from shmq.cli.shared.exit_codes import Code
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.console import console
from tests.support.proxy import Proxy
from tests.support.server import Server, fixed_port, serve
from tests.support.shell import Ran, Shell, ended
from tests.support.waiting import eventually
from tests.system.cli.conftest import Quick

#: What is done to queues from their making to their end: a command, and what it reads.
SESSION: list[tuple[str, bytes]] = [
    ("list", b""),
    ("create -q jobs --visibility-timeout 5m --max-deliveries 2", b""),
    ("create -q jobs --visibility-timeout 5m --max-deliveries 2 --json", b""),
    ("create -q jobs", b""),
    ("produce -q jobs -m one -m two --priority high --header from=web --group g", b""),
    ("produce -q jobs", b"a\nb\n"),
    ("produce -q jobs --codec json --json -m {}", b""),
    ("produce -q jobs -m late --delay 1h --ttl 2h", b""),
    ("produce -q nowhere -m x", b""),
    ("produce -q jobs", b"\xff\n"),
    ("produce -q jobs -m x --priority 99", b""),
    ("list", b""),
    ("list --json", b""),
    ("peek -q jobs", b""),
    ("peek -q jobs -n 2 --json", b""),
    ("peek -q jobs.dlq", b""),
    ("peek -q jobs --leased", b""),
    ("consume -q jobs -n 1 --json", b""),
    ("consume -q jobs -n 2", b""),
    ("consume -q jobs --format raw", b""),
    ("consume -q jobs", b""),
    ("consume -q nowhere", b""),
    ("stats -q jobs --json", b""),
    ("stats -q nowhere", b""),
    ("schema set -q jobs -", b'{"required": ["a"]}'),
    ("schema set -q jobs -", b'{"required": ["a", "b"]}'),
    ("schema check -q jobs -", b'{"required": "a"}'),
    ("schema show -q jobs", b""),
    ("schema list -q nowhere", b""),
    ("purge -q jobs", b""),
    ("purge -q jobs --yes", b""),
    ("release -q jobs --holder nobody --yes", b""),
    ("request -q jobs -m x --timeout 10ms", b""),
    ("request -q nowhere -m x", b""),
    ("purge -q jobs --yes", b""),
    ("redrive -q jobs --where age>1d", b""),
    ("redrive -q jobs --where age>1parsec", b""),
    ("redrive -q jobs", b""),
    ("exchange list", b""),
    ("exchange create orders --kind topic", b""),
    ("exchange create orders", b""),
    ("exchange create strays --kind headers --alternate orders --json", b""),
    ("exchange bind orders -q jobs -k *.created", b""),
    ("exchange bind orders -q nowhere", b""),
    ("exchange bind orders --to strays -k a.#", b""),
    ("exchange bind strays -q jobs --header a=1 --header b --match any", b""),
    ("exchange list", b""),
    ("exchange list --json", b""),
    ("exchange list strays", b""),
    ("publish orders -k eu.created -m one --json", b""),
    ("publish orders -k eu.created --header x=y", b"two\nthree\n"),
    ("publish orders -k nobody -m lost", b""),
    ("publish nowhere -m lost", b""),
    ("exchange unbind orders -q jobs -k *.created", b""),
    ("exchange unbind orders -q jobs -k *.created --json", b""),
    ("exchange delete strays --yes", b""),
    ("exchange delete orders", b""),
    ("exchange delete orders --yes --json", b""),
    ("locks", b""),
    ("locks --json", b""),
    ("table list", b""),
    ("table create results --max-bytes 1MiB", b""),
    ("table create results --json", b""),
    ("table set results a one --ttl 1h", b""),
    ("table set results b --codec json --json", b'{"n": 1}'),
    ("table set results b --codec json", b"{"),
    ("table set results a two --add", b""),
    ("table set nowhere a one", b""),
    ("table get results b --json", b""),
    ("table get results a", b""),
    ("table get results c --wait 10ms", b""),
    ("table keys results", b""),
    ("table keys results --prefix x --json", b""),
    ("table list", b""),
    ("table list --json", b""),
    ("table delete results a b c", b""),
    ("table delete results a", b""),
    ("table delete results", b""),
    ("table delete results --yes --json", b""),
    ("table delete results --yes", b""),
    ("stream list", b""),
    ("stream create clicks --partitions 2", b""),
    ("stream create clicks --partitions 3", b""),
    ("stream append clicks -k a.created -m one -m two", b""),
    ("stream append clicks --key-separator : -k x", b"y"),
    ("stream append nowhere -m x", b""),
    ("stream read clicks --with-key", b""),
    ("stream read clicks -p 7", b""),
    ("subscribe clicks *.created --history 5 -n 2", b""),
    ("subscribe nowhere --timeout 0s", b""),
    ("stream groups clicks", b""),
    ("stream groups clicks -g nobody", b""),
    ("stream hot clicks --over 10ms", b""),
    ("stream repartition clicks --partitions 4", b""),
    ("stream repartition clicks --partitions 2", b""),
    ("stream list --json", b""),
    ("stream delete clicks", b""),
    ("stream delete clicks --yes --json", b""),
    ("stream offsets clicks", b""),
    ("delete -q jobs --yes --json", b""),
    ("delete -q jobs.dlq --yes", b""),
    ("delete -q jobs --yes", b""),
    ("top --once", b""),
]

#: The commands that are tried on a server elsewhere; that work on this host; that use no queues.
ELSEWHERE = {"console", "ping", "stress", "who", "worker"}
HOST = {"backup", "doctor", "fsck", "keeper", "persist", "restore", "serve", "snapshot"}
APART = {"advise", "bridge", "cluster", "completion", "context", "dmsq", "pipeline", "token"}

# The others are tried with the example of their help.
SESSION += [
    (str(cli.commands[name].epilog).removeprefix("Example: shmq "), b"")
    for name in cli.commands
    if name not in {*ELSEWHERE, *HOST, *APART, *(command.split()[0] for command, _ in SESSION)}
]

#: What differs from run to run.
_FLEETING = re.compile(r'"(oldest_age|rate_in|rate_out|shm_bytes)": [\d.e-]+')


class RemoteShell(Shell):
    """Runs the command on the queues of a server."""

    def __init__(self, server: Server, **more: str) -> None:
        super().__init__(server.namespace)
        self._more = {"SHMQ_URL": server.url, **more}

    def environment(self) -> dict[str, str]:
        known = super().environment()
        del known["SHMQ_NAMESPACE"]
        return {**known, **self._more}


@pytest.fixture
def server(namespace: str) -> Iterator[Server]:
    with serve(namespace) as server:
        yield server


@pytest.fixture
def remote(server: Server) -> Iterator[RemoteShell]:
    shell = RemoteShell(server)
    yield shell
    shell.close()


@pytest.fixture
def elsewhere() -> Iterator[Shell]:
    """A shell of another namespace of this host, whose queues are deleted at the end."""
    shell = Shell(f"test-{secrets.token_hex(6)}")
    yield shell
    shell.close()
    with shmq.connect(shell.namespace) as broker:
        for queue in reversed(broker.list_queues()):
            broker.delete_queue(queue.name)
    Path(f"/dev/shm/shmq@{shell.namespace}").unlink(missing_ok=True)


def told(command: str, read: bytes, namespace: str, **environment: str | None) -> tuple[int, str]:
    """How a command ended, and what it printed, without what differs anyway."""
    ran = CliRunner(env={"SHMQ_URL": None, "SHMQ_NAMESPACE": None, **environment}).invoke(
        cli, command.split(), input=read
    )
    assert len(ran.stderr.splitlines()) == (ran.exit_code not in {Code.OK, Code.NOTHING}) or (
        "no reply" in ran.stderr or re.search(r"has no \w+", ran.stderr)
    ), ran.stderr
    return ran.exit_code, _FLEETING.sub("…", ran.stdout.replace(namespace, "default"))


@pytest.mark.prove
def test_a_session_reads_the_same_over_tcp_as_on_the_host(server: Server, elsewhere: Shell) -> None:
    for command, read in SESSION:
        here = told(command, read, elsewhere.namespace, SHMQ_NAMESPACE=elsewhere.namespace)
        there = told(command, read, server.namespace, SHMQ_URL=server.url)
        assert there == here, command


@pytest.mark.prove
def test_top_shows_a_servers_queues_and_the_attached_workers(
    remote: RemoteShell, server: Server, broker: shmq.Broker
) -> None:
    broker.create_queue("jobs", dead_letter=None).put("x")

    (row,) = remote("top", "--json").json

    assert (row["name"], row["depth"], row["problem"]) == ("jobs", 1, None)
    assert any(one.endswith(f" {server.workers()[0]}") for one in row["who"])


def test_the_queues_are_those_of_the_servers_host(remote: RemoteShell, broker: shmq.Broker) -> None:
    remote("create", "-q", "jobs")
    remote("produce", "-q", "jobs", "-m", "from afar")

    jobs = broker.queue("jobs")
    with jobs.get(timeout=0) as message:
        assert message.body == "from afar"
    jobs.put("from here", headers={"a": 1}, priority=shmq.HIGH)
    shown = remote("consume", "-q", "jobs", "--json").json
    assert (shown["body"], shown["headers"], shown["priority"]) == ("from here", {"a": 1}, 2)


@pytest.mark.prove
def test_dead_letters_are_seen_and_sent_back(remote: RemoteShell, broker: shmq.Broker) -> None:
    jobs = broker.create_queue("jobs")
    jobs.put("bad")
    jobs.get().reject()

    (dead,) = remote("peek", "-q", "jobs.dlq", "--json").json
    assert (dead["dead"]["reason"], dead["dead"]["queue"]) == ("rejected", "jobs")
    assert remote("redrive", "-q", "jobs").text == "1 dead letter sent back\n"
    assert jobs.get(timeout=0).body == "bad"


@pytest.mark.prove
def test_a_reader_that_leaves_loses_one_message_and_no_more(
    remote: RemoteShell, broker: shmq.Broker
) -> None:
    jobs = broker.create_queue("jobs")
    jobs.put_many([f"line {n}" for n in range(100)])

    assert remote.pipeline("shmq consume -q jobs | head -1").text == "line 0\n"

    eventually(lambda: jobs.stats().in_flight == 0, "the server gives back what was leased")
    assert jobs.qsize() == 99


@pytest.mark.prove
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_by_a_signal_and_returns_nothing_that_was_written(
    remote: RemoteShell, broker: shmq.Broker, number: int, tmp_path: Path
) -> None:
    jobs = broker.create_queue("jobs")
    jobs.put_many(["one", "two"])
    written = tmp_path / "written"
    with written.open("wb") as out:
        following = remote.start("consume", "-q", "jobs", "--follow", stdout=out)
        eventually(lambda: jobs.stats().acked == 2, "both are written and acknowledged")
        jobs.put("three")
        eventually(lambda: jobs.stats().acked == 3, "what comes later, too")
        following.send_signal(number)
        assert ended(following).code == 0

    assert written.read_text() == "one\ntwo\nthree\n"


@pytest.mark.prove
def test_following_goes_on_after_a_front_end_was_killed(
    remote: RemoteShell, server: Server, broker: shmq.Broker, tmp_path: Path
) -> None:
    jobs = broker.create_queue("jobs")
    jobs.put("before")
    written = tmp_path / "written"
    with written.open("wb") as out:
        following = remote.start("consume", "-q", "jobs", "--follow", stdout=out)
        eventually(lambda: jobs.stats().acked == 1, "the first is written")
        os.kill(server.workers()[0], signal.SIGKILL)
        jobs.put("after")
        eventually(lambda: jobs.stats().acked == 2, "the next is written")
        following.send_signal(signal.SIGTERM)
        assert ended(following).code == 0

    assert written.read_text() == "before\nafter\n"


@pytest.mark.prove
def test_following_outlives_an_outage(server: Server, broker: shmq.Broker, tmp_path: Path) -> None:
    jobs, port = broker.create_queue("jobs"), fixed_port()
    jobs.put("before")
    written, noted = tmp_path / "written", tmp_path / "noted"
    with (
        contextlib.closing(Proxy(server.url, port)) as proxy,
        contextlib.closing(RemoteShell(server, SHMQ_URL=proxy.url)) as shell,
        written.open("wb") as out,
        noted.open("wb") as err,
    ):
        following = shell.start("consume", "-q", "jobs", "--follow", stdout=out, stderr=err)
        eventually(lambda: jobs.stats().acked == 1, "the first is written")
        proxy.close()
        eventually(lambda: "waiting for the server" in noted.read_text(), "it has noticed")
        jobs.put("after")
        with contextlib.closing(Proxy(server.url, port)):
            eventually(lambda: jobs.stats().acked == 2, "the next is written")
            following.send_signal(signal.SIGTERM)
            assert ended(following).code == 0

    assert written.read_text() == "before\nafter\n"
    assert len(noted.read_text().splitlines()) == 1


def test_a_server_that_is_not_there_is_one_line_and_a_code_of_its_own(quick: Quick) -> None:
    for command in (
        ["list"],
        ["ping"],
        ["consume", "-q", "jobs"],
        ["create", "-q", "jobs"],
        ["stress", "--messages", "1"],
        ["top", "--once"],
    ):
        ran = quick("--url", "shmq://127.0.0.1:1", *command, code=Code.UNREACHED)
        assert "127.0.0.1:1" in ran.error
        assert ran.out == b""


@pytest.mark.prove
@pytest.mark.parametrize("url", ["http://127.0.0.1", "127.0.0.1:9999", "shmq://", "shmq://h:x"])
def test_what_is_no_url_is_wrong_usage(shell: Shell, url: str) -> None:
    assert shell("--url", url, "list", code=Code.USAGE).error


TOKEN = secrets.token_urlsafe(32)
FEW = secrets.token_urlsafe(32)


@pytest.fixture
def guarded(namespace: str, broker: shmq.Broker) -> Iterator[Server]:
    """A server with a token for all, and one for the queue ``mine`` alone, to consume from."""
    for name in ("mine", "other"):
        broker.create_queue(name, dead_letter=None)
    rights = {"produce": ["*"], "consume": ["*"], "admin": ["*"]}
    with serve(namespace, tokens={TOKEN: rights, FEW: {"consume": ["mine"]}}) as server:
        yield server


@pytest.mark.prove
def test_a_token_is_that_of_the_flag_or_of_the_environment_or_of_the_context(
    guarded: Server,
) -> None:
    bare, known = RemoteShell(guarded), RemoteShell(guarded, SHMQ_TOKEN=TOKEN)

    assert "token" in bare("list", code=Code.DENIED).error
    assert "token" in bare("--token", TOKEN[:-1] + "?", "list", code=Code.DENIED).error
    assert "mine" in bare("--token", TOKEN, "list").text
    assert "mine" in known("list").text
    known("--token", "x" * 40, "list", code=Code.DENIED)
    bare("context", "add", "guarded", "--url", guarded.url, "--token", TOKEN)
    assert "mine" in bare("--context", "guarded", "list").text


@pytest.mark.prove
def test_the_token_of_a_context_goes_to_no_other_server(guarded: Server, namespace: str) -> None:
    shell = Shell(namespace)
    shell("context", "add", "guarded", "--url", guarded.url, "--token", TOKEN, "--use")

    assert "token" in shell("--url", guarded.url, "list", code=Code.DENIED).error


@pytest.mark.prove
def test_what_a_token_has_no_right_to_is_not_there_or_denied(guarded: Server) -> None:
    few = RemoteShell(guarded, SHMQ_TOKEN=FEW)

    assert [one["name"] for one in few("list", "--json").json] == ["mine"]
    few("produce", "-q", "mine", "-m", "x", code=Code.DENIED)
    few("purge", "-q", "mine", "--yes", code=Code.DENIED)
    few("produce", "-q", "other", "-m", "x", code=Code.NO_QUEUE)
    few("consume", "-q", "mine", code=Code.NOTHING)
    assert few("ping", "-n", "1").code == 0


@pytest.mark.prove
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_tls_and_mutual_tls_take_files(namespace: str, tmp_path: Path) -> None:
    authority = Certificates(tmp_path)
    certificate, key = authority.sign("server")
    mine, its_key = authority.sign("client")
    tls = {"certificate": certificate, "key": key, "client_ca": authority.ca}
    with serve(namespace, tls=tls) as server:
        assert server.url.startswith("shmqs://")
        shell = RemoteShell(server)
        files = ("--cafile", str(authority.ca), "--cert", str(mine), "--key", str(its_key))

        assert shell("list", code=Code.UNREACHED).error
        assert shell("--cafile", str(authority.ca), "list", code=Code.UNREACHED).error
        shell(*files, "create", "-q", "jobs")
        shell("context", "add", "safe", "--url", server.url, *files)
        assert "jobs" in shell("--context", "safe", "list").text
        assert shell("--context", "safe", "ping", "-n", "2").code == 0


@pytest.mark.prove
def test_a_ping_shows_the_server_and_its_latency(remote: RemoteShell, server: Server) -> None:
    ran = remote("ping", "-n", "3", "--interval", "1ms", "--size", "64")
    assert ran.lines[0].startswith(f"shmq/{shmq.__version__} at {server.url}: connected in ")
    assert [line.split(" in ")[0] for line in ran.lines[1:4]] == [
        f"{n}: 64 bytes" for n in (1, 2, 3)
    ]
    assert re.fullmatch(r"least .* median .* most .*", ran.lines[4])

    shown = remote("ping", "-n", "2", "--interval", "0", "--json").json
    assert shown["url"] == server.url
    assert len(shown["times"]) == 2
    assert all(0 < each < 60 for each in (*shown["times"], shown["connect"]))


@pytest.mark.prove
def test_a_namespace_cannot_be_pinged(shell: Shell) -> None:
    assert "--url" in shell("ping", code=Code.USAGE).error
    ran = shell("--url", "shmq://x", "ping", "--timeout", "0", code=Code.USAGE)
    assert "--timeout" in ran.error


@pytest.mark.prove
@pytest.mark.parametrize("flags", [[], ["--batch", "64"], ["--kill"], ["--grouped"]])
def test_stress_verifies_what_passes_through_a_server(
    remote: RemoteShell, server: Server, flags: list[str]
) -> None:
    told = remote("stress", "--duration", "1s", *flags, "--json").json

    assert told["problems"] == []
    assert told["put"] > 0
    if "--kill" not in flags:
        assert told["got"] == told["put"]
    assert remote("list", "--json").json == []


@pytest.mark.prove
def test_what_needs_the_host_says_so(remote: RemoteShell, server: Server) -> None:
    for command in ("doctor", "fsck", "keeper", "serve"):
        ran = remote(command, code=Code.USAGE)
        assert server.url in ran.error
        assert "SHMQ_URL" in ran.error


@pytest.mark.prove
def test_the_queues_of_a_server_are_completed(remote: RemoteShell, broker: shmq.Broker) -> None:
    broker.create_queue("jobs", dead_letter=None)

    ran = remote.pipeline(
        "export COMP_WORDS='shmq peek -q jo' COMP_CWORD=3; _SHMQ_COMPLETE=bash_complete shmq"
    )

    assert ran.text == "plain,jobs\n"
    there_is_none = remote.pipeline(
        "export COMP_WORDS='shmq --url shmq://127.0.0.1:1 peek -q jo' COMP_CWORD=5; "
        "_SHMQ_COMPLETE=bash_complete shmq"
    )
    assert (there_is_none.code, there_is_none.text.strip(), there_is_none.err) == (0, "", b"")


def test_every_command_is_tried_on_a_server_or_needs_none() -> None:
    tried = {command.split()[0] for command, _ in SESSION}

    assert tried | ELSEWHERE | HOST | APART == set(cli.commands)


def test_a_console_of_a_server_shows_its_queues_and_puts_into_them(
    server: Server, broker: shmq.Broker
) -> None:
    jobs = broker.create_queue("jobs", dead_letter=None)

    with console(server.url) as site:
        made = site.api("POST", "/queues/jobs/messages", {"body": "tea"})
        shown = site.api("GET", "/queues/jobs/messages")

    assert made.status == 201, made
    assert [message["sequence"] for message in shown.json["items"]] == made.json["sequences"]
    assert jobs.get(timeout=0).body == "tea"


@pytest.mark.prove
def test_who_shows_the_processes_at_the_servers_host_whatever_their_pids(
    server: Server, broker: shmq.Broker
) -> None:
    jobs = broker.create_queue("jobs", dead_letter=None)

    shown = CliRunner(env={"SHMQ_URL": server.url}).invoke(cli, ["who", "-q", "jobs", "--json"])
    pids = {one["pid"] for one in json.loads(shown.stdout)}

    assert {os.getpid(), *server.workers()} <= pids
    jobs.close()


HANDLER = """
import pathlib
import shmq

def handle(message):
    with open("handled", "a") as out:
        out.write(f"{message.body}\\n")
"""


@pytest.mark.prove
def test_workers_take_messages_from_a_server_and_get_over_the_death_of_a_front_end(
    remote: RemoteShell, server: Server, broker: shmq.Broker, tmp_path: Path
) -> None:
    jobs = broker.create_queue("jobs")
    (tmp_path / "app.py").write_text(HANDLER)
    jobs.put_many(["one", "two"])

    worker = subprocess.Popen(
        remote.command("worker", "app:handle", "-q", "jobs", "--processes", "2"),
        cwd=tmp_path,
        env=remote.environment(),
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: jobs.stats().acked == 2, "both are handled")
        os.kill(server.workers()[0], signal.SIGKILL)
        jobs.put("three")
        eventually(lambda: jobs.stats().acked == 3, "the next one is handled, too")
        worker.send_signal(signal.SIGTERM)
        ran = ended(worker)
    finally:
        worker.kill()
        worker.wait()

    assert ran.code == 0, ran.err
    handled = (tmp_path / "handled").read_text().split()
    assert set(handled) == {"one", "two", "three"}
    assert len(handled) <= 3 + jobs.stats().redelivered


@pytest.mark.prove
def test_the_order_of_one_host_cannot_be_had_over_tcp(remote: RemoteShell, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HANDLER)

    ran: Ran = remote.pipeline(f"cd {tmp_path}; shmq worker app:handle -q jobs --mode fifo")

    assert ran.code == Code.USAGE
    assert "fifo" in ran.error


@pytest.mark.prove
def test_the_variable_of_a_url_goes_before_that_of_a_namespace_and_a_flag_before_both(
    server: Server, broker: shmq.Broker
) -> None:
    broker.create_queue("jobs", dead_letter=None)
    both = RemoteShell(server, SHMQ_NAMESPACE=f"{server.namespace}-other")

    assert [one["name"] for one in both("list", "--json").json] == ["jobs"]
    assert both("-n", f"{server.namespace}-other", "list", "--json").json == []


@pytest.mark.prove
def test_a_context_is_a_place_as_good_as_a_url(server: Server, broker: shmq.Broker) -> None:
    broker.create_queue("jobs", dead_letter=None)
    shell = RemoteShell(server, SHMQ_URL="")
    shell("context", "add", "there", "--url", server.url, "--use")

    assert [one["name"] for one in shell("list", "--json").json] == ["jobs"]
    assert json.loads(shell("context", "show", "--json").text)["url"] == server.url
