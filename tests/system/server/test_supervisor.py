"""A server's processes: how they start, die, take new settings and end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import shmq
from shmq.host.supervision.signals import SHOW_STACK
from shmq.protocol.opcodes import FOREVER, Status, Type
from shmq.server.config.settings import Source
from shmq.server.supervisor import Supervisor
from tests.support.ended_processes import runs
from tests.support.peer import Peer
from tests.support.processes import ROOT, environment, files_of
from tests.support.server import Server, fixed_port
from tests.support.waiting import eventually
from tests.system.server.conftest import Serve

TOKEN, OTHER = "t" * 40, "o" * 40
ALL = {"produce": ["*"], "consume": ["*"], "admin": ["*"]}


Hold = Callable[[Server, int], list[Peer]]


@pytest.fixture
def held(broker: shmq.Broker) -> Iterator[Hold]:
    """Makes connections that have a message leased each, by whichever worker."""
    with contextlib.ExitStack() as stack:

        def hold(server: Server, count: int) -> list[Peer]:
            queue = broker.ensure_queue("jobs", visibility_timeout=3600, max_deliveries=None)
            peers = [stack.enter_context(Peer(server)) for _ in range(count)]
            for peer in peers:
                queue.put(b"x")
                assert peer.take("jobs").kind == Type.DELIVER
            assert queue.stats().in_flight == count
            return peers

        yield hold


# --- deaths ----------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_and_what_its_connections_held_is_back_at_once(
    served: Serve, broker: shmq.Broker, held: Hold
) -> None:
    server = served(workers=2)
    peers = held(server, 8)
    queue = broker.queue("jobs")

    for pid in server.workers():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: queue.stats().in_flight == 0, "the leases are back")

    assert queue.stats().depth == 8
    assert all(peer.ended() for peer in peers)
    server.hears("accepts connections", 4)
    assert len(server.said(r"front end \d died, pid \d+: SIGKILL")) == 2
    with Peer(server) as peer:
        assert peer.take("jobs").kind == Type.DELIVER


@pytest.mark.prove
def test_a_connection_that_comes_while_no_worker_runs_is_served_by_the_next(
    served: Serve, broker: shmq.Broker
) -> None:
    server = served(workers=1)
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)

    with Peer(server) as peer:
        asked = peer.post(Type.PING, b"there?")
        os.kill(worker, signal.SIGKILL)

        assert peer.receive()[1:] == (Status.OK, asked, b"there?")


@pytest.mark.prove
def test_a_killed_keeper_is_replaced(served: Serve) -> None:
    server = served()
    (keeper,) = server.said(r"keeper started, pid (\d+)")

    os.kill(int(keeper), signal.SIGKILL)

    server.hears("keeper started", 2)


@pytest.mark.prove
def test_the_keeper_does_what_is_due_in_an_unused_queue(served: Serve, broker: shmq.Broker) -> None:
    """Only the dead-letter queue is looked at, which does not touch the other."""
    served()
    broker.create_queue("jobs", ttl=0.05).put(b"x")
    dead_letter_queue = broker.queue("jobs.dlq")

    eventually(lambda: dead_letter_queue.qsize() == 1, "the message is a dead letter")


def test_the_processes_of_a_killed_supervisor_drain_and_end(
    served: Serve, broker: shmq.Broker, held: Hold
) -> None:
    server = served(workers=2)
    peers = held(server, 4)

    server.process.kill()

    assert all(peer.ended() for peer in peers)
    server.leaves_no_process()
    assert server.said(r"draining \d connections")
    assert broker.queue("jobs").stats().in_flight == 0


@pytest.mark.prove
def test_processes_that_are_only_starting_do_not_outlive_it_either(served: Serve) -> None:
    server = served(workers=2)
    for pid in server.workers():
        os.kill(pid, signal.SIGKILL)
    server.hears("front end . started", 4)

    server.process.kill()

    server.leaves_no_process()


@pytest.mark.prove
def test_a_port_is_free_again_for_the_next_server_after_a_kill(
    served: Serve, broker: shmq.Broker, held: Hold
) -> None:
    port = fixed_port()
    first = served(workers=2, port=port)
    peers = held(first, 2)
    first.process.kill()

    second = served(workers=2, port=port)

    assert second.port == port
    assert all(peer.ended() for peer in peers)
    with Peer(second) as peer:
        peer.ok(Type.PING)


@pytest.mark.prove
def test_it_serves_without_uvloop(namespace: str, tmp_path: Path, broker: shmq.Broker) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "uvloop.py").write_text("raise ImportError\n")
    queue = broker.create_queue("q")
    server = Server(tmp_path, namespace, {})
    try:
        server.start(PYTHONPATH=f"{tmp_path / 'shadow'}:{ROOT}")
        server.ready()
        with Peer(server) as peer:
            asked = peer.begin_to_take("q", FOREVER)
            peer.ok(Type.PING)
            queue.put(b"x")
            assert peer.receive()[:3] == (Type.DELIVER, Status.OK, asked)
        assert server.stops() == 0
    finally:
        server.close()


# --- the end ---------------------------------------------------------------------------


def test_sigterm_drains(served: Serve, broker: shmq.Broker, held: Hold) -> None:
    server = served(workers=1, limits={"drain": 4})
    broker.create_queue("empty")
    (holder,) = held(server, 1)
    with Peer(server) as waiter:
        asked = waiter.begin_to_take("empty", FOREVER)
        waiter.ok(Type.PING)

        server.signal(signal.SIGTERM)

        ended = waiter.receive()
        assert (ended.id, ended.status) == (asked, Status.SHUTTING_DOWN)
        assert waiter.put("jobs").status == Status.SHUTTING_DOWN
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.address)
        assert waiter.ended() and holder.ended()
    assert server.ends() == 0
    stats = broker.queue("jobs").stats()
    assert (stats.depth, stats.in_flight, stats.put) == (1, 0, 1)


@pytest.mark.prove
def test_a_client_that_goes_lets_the_server_end_at_once(served: Serve) -> None:
    server = served(limits={"drain": 3600})
    with Peer(server) as peer:
        peer.ok(Type.PING)
        server.signal(signal.SIGTERM)
        server.hears("draining 1 connections")
    assert server.ends() == 0


@pytest.mark.prove
def test_a_client_that_never_reads_cannot_keep_the_server(
    served: Serve, broker: shmq.Broker
) -> None:
    server = served(limits={"drain": 0.5})
    queue = broker.create_queue("large", arena_bytes=256 << 20, max_message_bytes=32 << 20)
    queue.put(bytes(32 << 20))
    with Peer(server) as peer:
        peer.begin_to_take("large")
        eventually(lambda: queue.stats().in_flight == 1, "it is delivered")

        assert server.stops() == 0

        assert queue.stats().depth == 1


@pytest.mark.prove
def test_a_second_signal_ends_it_at_once(served: Serve, broker: shmq.Broker, held: Hold) -> None:
    server = served(limits={"drain": 3600})
    (peer,) = held(server, 1)

    server.signal(signal.SIGTERM)
    server.hears("draining")
    server.signal(signal.SIGTERM)

    assert server.ends() == 128 + signal.SIGTERM
    assert peer.ended()
    assert broker.queue("jobs").qsize() == 1


@pytest.mark.prove
def test_a_worker_that_ends_takes_another_sigterm_without_a_word(served: Serve) -> None:
    """As a service manager, or a shell, sends them: one to each process of the group."""
    server = served(workers=2)
    server.signal(signal.SIGTERM)

    for pid in server.workers():
        while runs(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    assert server.ends() == 0
    assert "Traceback" not in server.log


@pytest.mark.prove
def test_ctrl_c_drains_too(served: Serve) -> None:
    server = served(workers=2)
    for pid in (server.pid, *server.children()):  # as a terminal does it
        os.kill(pid, signal.SIGINT)

    assert server.ends() == 0


@pytest.mark.prove
def test_a_worker_that_hangs_is_ended_when_the_drain_is_over(served: Serve) -> None:
    server = served(limits={"drain": 0.5})
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)

    server.signal(signal.SIGTERM)

    assert server.ends() == 1
    assert server.said(r"not ended within drain=0.5 s, and killed: front end 1")


# --- new settings ----------------------------------------------------------------------


@pytest.mark.prove
def test_sighup_brings_new_tokens_and_closes_connections_of_removed_ones(served: Serve) -> None:
    server = served(workers=2, tokens={TOKEN: ALL, OTHER: ALL})
    with Peer(server) as stays, Peer(server) as goes, Peer(server) as again:
        stays.let_in(TOKEN)
        goes.let_in(OTHER)

        server.reload(workers=2, tokens={TOKEN: ALL, "n" * 40: ALL})

        assert goes.ended()
        stays.ok(Type.PING)
        assert again.hello(OTHER).status == Status.UNAUTHORIZED
        with Peer(server) as new:
            new.let_in("n" * 40)


@pytest.mark.prove
def test_sighup_brings_new_rights_to_new_connections(served: Serve) -> None:
    server = served(tokens={TOKEN: {"produce": ["*"]}})
    with Peer(server) as peer:
        peer.let_in(TOKEN)
        assert peer.create("q").status == Status.FORBIDDEN

        server.reload(tokens={TOKEN: ALL})

        assert peer.ended()
    with Peer(server) as peer:
        assert peer.let_in(TOKEN).create("q").status == Status.OK


@pytest.mark.prove
def test_sighup_brings_new_limits_and_a_new_level(served: Serve) -> None:
    server = served()
    with Peer(server) as first:
        first.ok(Type.PING)

        server.reload(limits={"connections": 1}, log_level="debug")

        with Peer(server) as second:
            assert second.ended()
        first.ok(Type.PING)
    assert server.said(r"connection refused: connections=1 are open")
    server.hears(r"127.0.0.1:\d+: disconnected")


@pytest.mark.prove
def test_what_takes_a_restart_is_named_and_stays(served: Serve) -> None:
    server = served()
    port = server.port

    server.reload(port=1, workers=3, tokens={TOKEN: ALL})

    assert server.said("not reloaded, since these settings need a restart: port, tokens, workers")
    assert server.port == port
    with Peer(server) as peer:
        peer.ok(Type.LIST)


@pytest.mark.prove
@pytest.mark.parametrize("text", ["port = ", "tokens = 5", "[tls]\ncertificate = 'none'"])
def test_a_file_that_is_wrong_changes_nothing(served: Serve, text: str) -> None:
    server = served(tokens={TOKEN: ALL})
    server.config.write_text(text)

    server.signal(signal.SIGHUP)

    server.hears("settings not reloaded: .*")
    with Peer(server) as peer:
        peer.let_in(TOKEN).ok(Type.LIST)


# --- what cannot be started ------------------------------------------------------------


def refused(*flags: str) -> str:
    """The one line with which ``shmq serve`` ends that cannot start."""
    run = subprocess.run(
        [sys.executable, "-m", "shmq.cli", "serve", *flags],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in {1, 2}, run
    (line,) = run.stderr.splitlines()
    return line


@pytest.mark.prove
def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    assert "tokens and TLS" in refused("--bind", "0.0.0.0", "--port", "0")
    (tmp_path / "f").touch()
    assert "is a file" in refused("--data-dir", str(tmp_path / "f"))
    assert "drop one" in refused("--data-dir", str(tmp_path), "--no-persist")
    assert "cannot be read" in refused("--config", str(tmp_path / "none"))
    assert "invalid namespace" in refused("--namespace", "a b")
    (tmp_path / "c").write_text("[tls]\ncertificate = 'none'")
    assert "certificate" in refused("--config", str(tmp_path / "c"), "--port", "0")


def die(*_: object) -> None:
    """What a worker does that cannot even begin."""
    os._exit(3)


@pytest.mark.prove
def test_a_server_whose_workers_die_at_once_gives_up(
    namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shmq.server.worker.main", die)
    source = Source(None, {"port": 0, "workers": 1, "namespace": namespace})

    with pytest.raises(shmq.ShmqError, match="before the server was up"):
        Supervisor(source).run()

    assert caplog.text.count("front end 1 died") == 4


@pytest.mark.prove
def test_a_port_that_is_taken_is_told(served: Serve) -> None:
    port = served().port

    assert f"port {port}: Address already in use" in refused("--port", str(port))


# --- descriptors and the service manager -----------------------------------------------


@pytest.mark.prove
def test_a_worker_may_have_as_many_descriptors_as_its_connections_need(served: Serve) -> None:
    server = served(limits={"connections": 3000})

    soft, _ = resource.prlimit(server.workers()[0], resource.RLIMIT_NOFILE)

    assert soft >= 3000


class Manager:
    """A service manager's end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(60)
        self.heard: list[dict[str, str]] = []

    def hears(self, key: str) -> dict[str, str]:
        """What comes up to the next datagram that has that key."""
        while True:
            text = self._socket.recv(4096).decode()
            said = dict(line.split("=", 1) for line in text.splitlines())
            self.heard.append(said)
            if key in said:
                return said

    def fill(self) -> None:
        """Leave no room for another datagram."""
        with (
            contextlib.suppress(BlockingIOError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.setblocking(False)
            while True:
                sender.sendto(b"STATUS=full", str(self.path))

    def close(self) -> None:
        self._socket.close()


@pytest.mark.prove
def test_each_process_writes_its_stacks_when_it_is_asked(served: Serve) -> None:
    server = served()
    for pid in (server.pid, *server.children()):
        before = len(server.said("most recent call first"))
        os.kill(pid, SHOW_STACK)
        server.hears("most recent call first", before + 1)
    assert server.stops() == 0


@pytest.mark.prove
def test_the_service_manager_is_told(tmp_path: Path, namespace: str) -> None:
    manager = Manager(tmp_path / "notify")
    server = Server(tmp_path, namespace, {"workers": 2})
    try:
        server.start(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="200000")
        ready = manager.hears("READY")
        assert ready == {"READY": "1", "STATUS": f"listening on {server.url}"}
        assert [*manager.hears("WATCHDOG")] == ["WATCHDOG"]
        assert [*manager.hears("WATCHDOG")] == ["WATCHDOG"]

        server.signal(signal.SIGHUP)
        reloading = manager.hears("RELOADING")
        assert int(reloading["MONOTONIC_USEC"]) > 0
        assert manager.hears("READY")["READY"] == "1"

        server.signal(signal.SIGTERM)
        assert manager.hears("STOPPING")["STOPPING"] == "1"
        assert server.ends() == 0
        assert not [said for said in manager.heard if "READY" in said][2:]
    finally:
        server.close()
        manager.close()


@pytest.mark.prove
def test_a_manager_that_does_not_receive_holds_nothing_up(tmp_path: Path, namespace: str) -> None:
    manager = Manager(tmp_path / "notify")
    manager.fill()
    server = Server(tmp_path, namespace, {"workers": 1})
    try:
        server.start(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="20000")
        server.hears("listening on")
        server.signal(signal.SIGHUP)
        server.hears("settings reloaded")
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
    finally:
        server.close()
        manager.close()


@pytest.mark.prove
def test_the_processes_of_the_server_do_not_speak_to_its_manager(
    tmp_path: Path, namespace: str
) -> None:
    manager = Manager(tmp_path / "notify")
    server = Server(tmp_path, namespace, {})
    try:
        server.start(NOTIFY_SOCKET=str(manager.path))
        manager.hears("READY")
        for pid in server.workers():
            assert "NOTIFY_SOCKET" not in psutil.Process(pid).environ()
        assert runs(server.pid)
        assert server.stops() == 0
    finally:
        server.close()
        manager.close()


@pytest.mark.prove
def test_a_server_whose_queues_are_deleted_leaves_nothing_in_shared_memory(
    served: Serve, namespace: str
) -> None:
    server = served()
    (worker,) = server.workers()
    keeper = int(server.said(r"keeper started, pid (\d+)")[0])
    with shmq.connect(server.url) as broker:
        broker.create_queue("q", dead_letter=None)
        eventually(lambda: len(broker.queue("q").attachments()) > 1, "the keeper has seen it")
        broker.delete_queue("q")

    os.kill(keeper, signal.SIGSTOP)  # so that it ends last, and the worker sees it alive
    server.signal(signal.SIGTERM)
    eventually(lambda: not runs(worker), "the worker ends")
    os.kill(keeper, signal.SIGCONT)

    assert server.ends() == 0
    assert not files_of(namespace)
