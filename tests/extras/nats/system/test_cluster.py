"""``shmq cluster`` on this host, from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shmq.extras.nats.cluster.local import LocalCluster
from tests.support.nats_cluster import OLD_BINARY
from tests.support.shell import Shell


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    if (tmp_path / "cluster/cluster.json").exists():
        LocalCluster.load(tmp_path / "cluster").stop()


@pytest.mark.prove
def test_a_cluster_is_started_checked_and_stopped(directory: Path, shell: Shell) -> None:
    where = ("--dir", str(directory))
    url = shell("cluster", "start", *where).text.strip()
    assert url == LocalCluster.load(directory).url
    servers = shell("cluster", "status", *where, "--json").json
    assert [one["syncs"] for one in servers] == [True] * 3
    assert {one["domain"] for one in servers} == {"shmq"}
    found = shell("cluster", "doctor", *where, "--json").json
    assert [one["severity"] for one in found] == ["notice"]

    node = LocalCluster.load(directory).nodes[0]
    before = node.pid
    node.kill()
    said = shell("cluster", "doctor", *where, code=10).text
    assert f"critical: {node.monitor}: {node.monitor}/varz does not answer" in said
    shell("cluster", "start", *where)
    assert node.pid not in {None, before}

    shell("cluster", "stop", *where)
    assert [one.pid for one in LocalCluster.load(directory).nodes] == [None] * 3
    shell("cluster", "status", *where, code=11)


def test_servers_that_do_not_sync_are_found(directory: Path, shell: Shell) -> None:
    where = ("--dir", str(directory))
    shell("cluster", "start", *where, "--nodes", "1", "--sync-interval", "2m")
    said = shell("cluster", "doctor", *where, code=10).text
    assert "warning: shmq-1: it syncs every 120 s" in said


@pytest.mark.skipif(not OLD_BINARY.exists(), reason="needs nats-server of Debian 12")
def test_an_old_server_is_refused(directory: Path, shell: Shell) -> None:
    said = shell("cluster", "start", "--dir", str(directory), "--binary", str(OLD_BINARY), code=1)
    assert said.error.startswith(f"{OLD_BINARY} is nats-server 2.9.10: install 2.12.0")
    assert not directory.exists()
