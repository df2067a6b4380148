"""``shmq serve`` on a Unix socket, and on one that the service manager has opened."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import struct
import sys
import tempfile
from pathlib import Path

import pytest

import shmq
from shmq.client.remote.address import Address
from shmq.protocol.opcodes import FOREVER, Type
from shmq.server.config.settings import Settings
from shmq.server.listener import check, refuse
from tests.support.namespaces import own_namespace
from tests.support.peer import frame, name_of
from tests.support.server import serve
from tests.support.waiting import eventually

#: Opens a socket as a service manager does, and becomes the command that follows.
MANAGER = """
import os, socket, sys
path = sys.argv[1]
made = socket.socket(socket.AF_UNIX)
made.bind(path)
made.listen()
os.dup2(made.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="shmq")
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_unix_socket_is_for_its_user_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "with space.sock"
    with own_namespace() as namespace, serve(namespace, workers=2, bind=f"unix:{path}") as server:
        assert server.url == f"shmq+unix://{tmp_path}/with%20space.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with shmq.connect(server.url) as first, shmq.connect(server.url) as second:
            first.create_queue("q").put("over a Unix socket")
            with second.queue("q").get(timeout=30) as message:
                assert message.body == "over a Unix socket"
            first.delete_queue("q")
        assert server.stops() == 0
        assert re.search(r"queue.create .*peer=\S*unix:pid=\d+", server.log)
    assert not path.exists()


def test_a_reset_behind_much_input_is_noticed(tmp_path: Path) -> None:
    with (
        own_namespace() as namespace,
        serve(namespace, bind=f"unix:{tmp_path}/shmq.sock") as server,
        shmq.connect(namespace) as broker,
        socket.socket(socket.AF_UNIX) as client,
        socket.socket(socket.AF_UNIX) as other,
    ):
        queue = broker.create_queue("q", visibility_timeout=3600)
        queue.put(b"x")
        client.connect(f"{tmp_path}/shmq.sock")
        consume = frame(Type.CONSUME, name_of("q") + struct.pack("!IIB", 1, FOREVER, 0))
        client.sendall(consume)
        client.recv(1, socket.MSG_PEEK)  # closed with this unread, the server's end is reset
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        for _ in range(20):  # what comes with a descriptor is received separately
            socket.send_fds(client, [consume], [other.fileno()])
        client.close()
        os.kill(worker, signal.SIGCONT)

        eventually(lambda: queue.qsize() == 1, "what it held is back")


@pytest.mark.prove
def test_a_client_connects_again_after_a_restart_on_the_path_of_a_killed_server(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shmq.sock"
    with (
        own_namespace() as namespace,
        serve(namespace, bind=f"unix:{path}") as server,
        shmq.connect(server.url) as broker,
    ):
        queue = broker.create_queue("q")
        server.signal(signal.SIGKILL)
        server.ends()
        assert path.exists()
        server.start()
        server.ready()
        queue.put("again")
        assert queue.get(timeout=30).body == "again"


@pytest.mark.prove
def test_the_socket_of_a_service_manager_is_taken_and_left(tmp_path: Path) -> None:
    path = tmp_path / "activated.sock"
    manager = [sys.executable, "-c", MANAGER, str(path)]
    with own_namespace() as namespace, serve(namespace, before=manager, workers=2) as server:
        assert server.url == f"shmq+unix://{path}"
        with shmq.connect(server.url) as broker:
            assert broker.list_queues() == []
        assert server.stops() == 0
    assert path.exists()


def test_a_path_that_cannot_be_listened_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(shmq.InvalidOption, match="an absolute path of at most 107 bytes"):
        refuse(Settings(bind="unix:relative"))
    with pytest.raises(shmq.InvalidOption, match="an absolute path of at most 107 bytes"):
        refuse(Settings(bind=f"unix:/{'x' * 107}"))
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(shmq.InvalidOption, match=r"there is no folder .*; create it"):
        refuse(Settings(bind=f"unix:{tmp_path}/none/s"))
    with pytest.raises(shmq.InvalidOption, match="is not a socket; move it"):
        refuse(Settings(bind=f"unix:{file}"))
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(tmp_path / "taken"))
        refuse(Settings(bind=f"unix:{tmp_path}/taken"))  # nobody listens
        taken.listen()
        with pytest.raises(shmq.ShmqError, match="take another path"):
            refuse(Settings(bind=f"unix:{tmp_path}/taken"))
    assert file.read_text() == "kept"


def test_a_folder_that_may_not_be_written_to_is_refused() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o555)
        user = os.geteuid()
        if not user:
            os.seteuid(65534)  # root may write everywhere
        try:
            with pytest.raises(shmq.InvalidOption, match="may not create a file in") as error:
                check(Settings(bind=f"unix:{folder}/s"))
        finally:
            os.seteuid(user)
    assert folder in str(error.value)


def test_an_inherited_socket_must_listen() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(shmq.InvalidOption, match="ListenStream="):
            refuse(Settings(), bound)
        bound.listen()
        refuse(Settings(), bound)
    with socket.socket() as exposed:
        exposed.bind(("0.0.0.0", 0))
        exposed.listen()
        with pytest.raises(shmq.InvalidOption, match="without tokens and TLS"):
            refuse(Settings(), exposed)


@pytest.mark.parametrize(
    "url", ["shmq+unix://relative/path", "shmq+unix://", "shmq+unix:///", "shmq+unix:///a?b=c"]
)
def test_a_url_of_a_unix_socket_is_a_path_alone(url: str) -> None:
    with pytest.raises(shmq.InvalidOption, match="three slashes"):
        Address.parse(url)


def test_a_url_of_a_unix_socket_has_no_tls_and_survives_its_own_text() -> None:
    address = Address.parse("shmq+unix:///run/a%20b")
    assert address.path == "/run/a b"
    assert Address.parse(str(address)) == address
    with pytest.raises(shmq.InvalidOption, match="has no TLS"):
        shmq.connect(str(address), tls=True)


def test_a_socket_that_is_not_there_is_said_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(shmq.ConnectionLost, match=rf"{tmp_path}/none.*is `shmq serve` running"):
        shmq.connect(f"shmq+unix://{tmp_path}/none", connect_timeout=0.2)
    assert os.listdir(tmp_path) == []
