"""The configuration of a cluster on this host, and the program that it is made for."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shmq.errors import InvalidOption, ShmqError
from shmq.extras.nats.client.version import parse_version
from shmq.extras.nats.cluster.binary import find_binary
from shmq.extras.nats.cluster.local import LocalCluster


def test_a_time_is_in_quotes_without_which_it_would_be_a_number(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path / "c", sync="2m")
    text = (tmp_path / "c/node-1/nats.conf").read_text()
    assert 'sync_interval: "2m"' in text


def test_every_server_lists_all_and_no_port_is_given_twice(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path / "c", nodes=5)
    texts = [(node.folder / "nats.conf").read_text() for node in made.nodes]
    assert all(text.count("nats-route://") == 5 for text in texts)
    ports = [
        port
        for node in made.nodes
        for port in (node.ports.client, node.ports.peer, node.ports.monitor, node.ports.leaf)
    ]
    assert len(set(ports)) == 20


def test_the_configuration_is_private(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path / "c", nodes=1)
    file = made.nodes[0].folder / "nats.conf"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_cluster_is_found_again(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path / "c")
    found = LocalCluster.load(tmp_path / "c")
    assert (found.url, found.monitors) == (made.url, made.monitors)
    assert [node.pid for node in found.nodes] == [None, None, None]


def test_a_directory_has_one_cluster(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path / "c", nodes=1)
    with pytest.raises(ShmqError, match="has a cluster already"):
        LocalCluster.create(tmp_path / "c", nodes=1)


def test_a_directory_without_a_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShmqError, match="has no cluster: make one with shmq cluster start"):
        LocalCluster.load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 2}, "nodes=2 must be 1, 3 or 5"),
        ({"sync": "often"}, "sync='often' must be always, or a time"),
        ({"name": "a b"}, "name='a b' must be 1 to 32"),
        ({"first_port": 80}, "the first port 80 must be from 1024"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        LocalCluster.create(tmp_path / "c", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


def test_an_old_program_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho 'nats-server: v2.11.9'\n")
    old.chmod(0o700)
    with pytest.raises(ShmqError, match=r"is nats-server 2\.11\.9: install 2\.12\.0 or later"):
        find_binary(old)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ShmqError, match="'no-such-program' is not a program"):
        find_binary("no-such-program")


@pytest.mark.parametrize(
    ("text", "version"), [("nats-server: v2.14.0\n", (2, 14, 0)), ("2.12.1-RC.3", (2, 12, 1))]
)
def test_versions_are_read(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_a_text_without_a_version_is_refused() -> None:
    with pytest.raises(ShmqError, match="names no version"):
        parse_version("hello")
