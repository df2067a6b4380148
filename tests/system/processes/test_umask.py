"""Under a umask that takes rights from the user, too, every file of shmq gets the mode it needs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

import shmq
from shmq.host.namespace.namespace import Namespace
from shmq.native.descriptors import open_file
from tests.support.namespaces import own_namespace
from tests.support.processes import ROOT, SHM, environment
from tests.support.server import serve
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE, eventually

from .closed_descriptors import STEPS

UMASKS: Final = ["777", *(pytest.param(one, marks=pytest.mark.prove) for one in ("277", "077"))]


def with_umask(umask: str) -> tuple[str, ...]:
    """The command that runs another one, given as its arguments, with that umask."""
    return ("sh", "-c", f'umask {umask}; exec "$0" "$@"')


@pytest.fixture
def namespace() -> Iterator[str]:
    """One that has also what a killed writer leaves."""
    with own_namespace(debris=True) as name:
        yield name


@pytest.fixture
def url(namespace: str) -> Iterator[str]:
    with TCP_SERVERS.serve(namespace) as url:
        yield url


def below(folder: Path) -> Iterator[Path]:
    """The folder, and all that is in it."""
    yield folder
    yield from folder.rglob("*")


def shared_files(namespace: str) -> Iterator[Path]:
    for path in SHM.iterdir():
        if f"shmq@{namespace}" in path.name:
            yield from below(path)


def wrong_modes(paths: Iterable[Path]) -> dict[str, str]:
    """The files that are not 0600 and the directories that are not 0700, with their modes."""
    found = {}
    for path in paths:
        mode = path.lstat().st_mode
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600):
            found[str(path)] = stat.filemode(mode)
    return found


def await_right_modes(paths: list[Path]) -> None:
    """Return once none is wrong: a file that was just made gets its mode a moment later."""
    eventually(lambda: not wrong_modes(paths), "each file has the right mode")


@pytest.mark.parametrize("umask", UMASKS)
def test_a_program_and_its_writer_make_private_files(
    namespace: str, url: str, tmp_path: Path, umask: str
) -> None:
    report, data, backup = tmp_path / "report", tmp_path / "new" / "data", tmp_path / "backup"
    report.touch(mode=0o600)
    shared = environment(SHMQ_NAMESPACE=namespace, BACKUP=backup)
    commands: list[list[str | Path]] = [
        ["shmq.cli", "persist", "--detach", "--data-dir", data],
        ["tests.system.processes.closed_descriptors", report, namespace, url, "--", *STEPS],
    ]
    for command in commands:
        subprocess.run(
            [*with_umask(umask), sys.executable, "-m", *command],
            cwd=ROOT,
            env=shared,
            timeout=2 * PATIENCE,
            check=True,
        )
    try:
        assert json.loads(report.read_text()) == {"opened": {}, "error": None}
        kept = [*below(tmp_path / "new"), *below(backup)]
        names = {path.name.rpartition(".")[2] for path in kept}
        assert names >= {"lock", "log", "dmsq", "exchanges"}, "every kind is there"
        await_right_modes([*kept, *shared_files(namespace)])
    finally:
        end_writer(namespace)


def end_writer(namespace: str) -> None:
    pid = Namespace.of(namespace).roles.writer_pid
    if pid:
        psutil.Process(pid).kill()
        eventually(lambda: not psutil.pid_exists(pid), "the writer is dead")


@pytest.mark.parametrize("umask", UMASKS)
def test_a_server_makes_private_files(namespace: str, tmp_path: Path, umask: str) -> None:
    socket, log, data = tmp_path / "socket", tmp_path / "audit", tmp_path / "data"
    with (
        serve(
            namespace,
            before=with_umask(umask),
            bind=f"unix:{socket}",
            audit_log=str(log),
            data_dir=str(data),
        ) as server,
        shmq.connect(server.url) as broker,
    ):
        broker.create_queue("q", durability="journal").put(b"x", confirm="disk", timeout=PATIENCE)
        made = [socket, log, *below(data), *shared_files(namespace)]
        assert {"writer.lock", "q@0000000000000001.dmsq"} <= {path.name for path in made}
        await_right_modes(made)


def test_the_file_of_contexts_is_private(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shmq.cli", "context", "add", "one", "--namespace", "one"]
    subprocess.run(
        [*with_umask("777"), *command],
        cwd=ROOT,
        env=environment(XDG_CONFIG_HOME=tmp_path / "config"),
        timeout=PATIENCE,
        check=True,
    )
    assert (tmp_path / "config" / "shmq" / "target.json").exists()
    assert not wrong_modes(below(tmp_path / "config"))


def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    path.chmod(0o640)
    os.close(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
