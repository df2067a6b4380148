"""The data directory: where it is, and which process may write there."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import shmq
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.inventory import is_written
from shmq.host.namespace.data_directory import DataDirectory, chosen_directory
from shmq.host.namespace.namespace import Namespace
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHMQ_DATA_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHMQ_STATE_DIR")


def of(namespace: str, path: str | Path) -> DataDirectory:
    return DataDirectory(namespace, Disk(path))


@pytest.mark.usefixtures("no_state")
def test_what_is_given_goes_over_the_variable_and_that_over_the_usual_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/ada")

    assert chosen_directory("shop") == Path("/ada/.local/state/shmq/shop")
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert chosen_directory("shop") == Path("/ada/.local/state/shmq/shop")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert chosen_directory("shop") == Path("/state/shmq/shop")
    monkeypatch.setenv("SHMQ_STATE_DIR", "/states")
    assert chosen_directory("shop") == Path("/states/shop")
    monkeypatch.setenv("SHMQ_STATE_DIR", "")
    monkeypatch.setenv("SHMQ_DATA_DIR", "")
    assert chosen_directory("shop") == Path("/state/shmq/shop")
    monkeypatch.setenv("SHMQ_DATA_DIR", "/data")
    assert chosen_directory("shop") == Path("/data/shop")
    assert chosen_directory("shop", tmp_path) == tmp_path


def test_a_variable_that_names_a_namespaces_own_directory_goes_on_meaning_that(
    monkeypatch: pytest.MonkeyPatch, namespace: str, tmp_path: Path
) -> None:
    directory = of(namespace, tmp_path / "d")
    directory.ready()
    directory.close()
    Namespace.of(namespace).retire()
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path / "d"))

    assert chosen_directory(namespace) == tmp_path / "d"
    assert chosen_directory("shop") == tmp_path / "d" / "shop"


@pytest.mark.usefixtures("no_state")
def test_the_usual_place_of_root_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert chosen_directory("shop") == Path("/var/lib/shmq/shop")


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(shmq.InvalidOption, match="data_dir='' is not a directory"):
        chosen_directory("shop", "")


def test_it_is_made_for_its_user_alone_and_the_namespace_knows_it(
    namespace: str, tmp_path: Path
) -> None:
    registry = Namespace.of(namespace)
    assert registry.roles.data_dir is None
    directory = of(namespace, tmp_path / "a" / "b")
    assert not directory.exists()

    directory.ready()
    directory.ready()  # once is enough

    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.path.iterdir()} == {0o600}
    assert registry.roles.data_dir == tmp_path / "a" / "b"
    assert is_written(directory.path)
    directory.close()
    assert not is_written(directory.path)
    assert registry.roles.data_dir == tmp_path / "a" / "b"
    registry.retire()


def test_another_process_is_told_where_it_is(namespace: str, tmp_path: Path) -> None:
    directory = of(namespace, tmp_path / "d")
    directory.ready()
    look = (
        "from shmq.host.namespace.namespace import Namespace; "
        f"print(Namespace.of({namespace!r}).roles.data_dir)"
    )

    run = subprocess.run(
        [sys.executable, "-c", look],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout == f"{tmp_path / 'd'}\n"
    directory.close()
    Namespace.of(namespace).retire()


def test_there_is_one_writer_at_a_time(namespace: str, tmp_path: Path) -> None:
    first, second = of(namespace, tmp_path / "d"), of(namespace, tmp_path / "d")
    first.ready()

    with pytest.raises(shmq.ShmqError, match="writes there already"):
        second.ready()

    first.close()
    second.ready()
    second.close()
    Namespace.of(namespace).retire()


def test_a_namespace_is_written_to_one_directory_at_a_time(namespace: str, tmp_path: Path) -> None:
    first, second = of(namespace, tmp_path / "d"), of(namespace, tmp_path / "e")
    first.ready()

    with pytest.raises(shmq.ShmqError, match=f"process {os.getpid()} writes .* in {tmp_path}/d"):
        second.ready()
    assert not second.held
    assert Namespace.of(namespace).roles.data_dir == tmp_path / "d"

    first.close()
    second.ready()
    assert Namespace.of(namespace).roles.data_dir == tmp_path / "e"
    second.close()
    Namespace.of(namespace).retire()


@pytest.mark.prove
def test_a_claim_keeps_others_out_before_there_is_a_directory(
    namespace: str, tmp_path: Path
) -> None:
    first = (
        "import sys; from tests.system.persistence.test_directory import of; "
        f"of({namespace!r}, {str(tmp_path / 'd')!r}).claim(make=False); "
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", first],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        assert not (tmp_path / "d").exists()

        for path in (tmp_path / "d", tmp_path / "e"):
            for make in (False, True):
                with pytest.raises(
                    shmq.ShmqError, match=f"process {process.pid} writes .* in {tmp_path}/d:"
                ):
                    of(namespace, path).claim(make=make)

        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    second = of(namespace, tmp_path / "e")
    second.claim(make=False)
    assert not second.exists()
    second.close()
    Namespace.of(namespace).retire()


def test_a_claim_to_a_directory_that_was_named_is_one_for_all_namespaces(
    namespace: str, tmp_path: Path
) -> None:
    first = of(namespace, tmp_path / "d")
    first.claim(make=True)

    with pytest.raises(shmq.ShmqError, match=f"process {os.getpid()} writes there already"):
        of(f"{namespace}-b", tmp_path / "d").claim(make=True)

    first.close()
    for each in (namespace, f"{namespace}-b"):
        Namespace.of(each).retire()


def test_a_directory_belongs_to_one_namespace(namespace: str, tmp_path: Path) -> None:
    directory = of(namespace, tmp_path / "d")
    directory.ready()
    directory.close()

    with pytest.raises(shmq.ShmqError, match=f"has the files of namespace '{namespace}'"):
        of("another", tmp_path / "d").ready()

    Namespace.of(namespace).retire()


def test_a_directory_that_others_may_enter_is_refused(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o755)
    (tmp_path / "d").chmod(0o755)

    with pytest.raises(shmq.ShmqError, match="mode 0755, so others may read"):
        of(namespace, tmp_path / "d").ready()


def test_what_is_no_directory_is_refused(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "f").touch()

    with pytest.raises(shmq.ShmqError, match="cannot be used"):
        of(namespace, tmp_path / "f").ready()


def test_a_record_that_was_written_half_is_none(namespace: str, tmp_path: Path) -> None:
    registry = Namespace.of(namespace)
    registry.roles.become_writer(tmp_path)
    path = Path(f"/dev/shm/shmq@{namespace}")
    raw = path.read_bytes()

    end = raw.index(bytes(tmp_path)) + len(bytes(tmp_path))
    for cut in range(9, end):
        path.write_bytes(raw[:cut])
        assert registry.roles.data_dir is None
    path.write_bytes(raw)
    assert registry.roles.data_dir == tmp_path
    registry.roles.release_writer()
    registry.retire()


def test_a_full_disk_leaves_the_namespaces_name_in_the_lock(
    monkeypatch: pytest.MonkeyPatch, namespace: str, tmp_path: Path
) -> None:
    directory = of(namespace, tmp_path)
    directory.ready()
    directory.close()
    Namespace.of(namespace).retire()

    write = os.pwrite

    def on_full_disk(fd: int, text: bytes, at: int) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink().parent == tmp_path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, text, at)

    with monkeypatch.context() as patch, pytest.raises(shmq.ShmqError, match="No space left"):
        patch.setattr(os, "pwrite", on_full_disk)
        of(namespace, tmp_path).ready()

    with pytest.raises(shmq.ShmqError, match=f"the files of namespace '{namespace}'"):
        of("other", tmp_path).ready()
