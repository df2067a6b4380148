"""Copies of streams at another site, which is joined as a leaf node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import shmq
from shmq.cli.main import cli
from shmq.extras.nats.client.broker import NatsBroker
from shmq.extras.nats.cluster.findings import find
from shmq.extras.nats.cluster.local import LocalCluster
from shmq.extras.nats.cluster.observation import observe
from tests.support.bridge import wait_until
from tests.support.nats_cluster import running_cluster


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, LocalCluster]]:
    folder = tmp_path_factory.mktemp("sites")
    with (
        running_cluster(folder / "a", nodes=1, name="site-a") as a,
        running_cluster(folder / "b", nodes=1, name="site-b", remotes=a.leaf_urls) as b,
    ):
        yield a, b


def command(url: str, *arguments: str) -> list[dict[str, object]]:
    ran = CliRunner().invoke(cli, ["--url", url, "cluster", *arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    found: list[dict[str, object]] = json.loads(ran.output)
    return found


def values(stream: shmq.Stream) -> list[bytes]:
    return sorted(
        bytes(one.value)
        for partition in range(stream.partitions)
        for one in stream.read(partition, stream.earliest(partition))
    )


def defined(broker: shmq.Broker) -> list[str]:
    """The streams that the registry names, whether they are there or not."""
    assert isinstance(broker, NatsBroker)
    return broker.streams.names()


def test_a_mirror_is_read_at_the_other_site_and_its_lag_is_shown(
    sites: tuple[LocalCluster, LocalCluster],
) -> None:
    a, b = sites
    sent = [b"%d" % at for at in range(40)]
    with shmq.connect(f"{a.url}/mirrored") as here:
        stream = here.create_stream("events", partitions=2)
        stream.append_many(sent, keys=[f"k{at}" for at in range(40)])
        flags = (f"{a.url}/mirrored", "mirror", "events", "--site", "site-b")
        assert len(command(*flags)) == 3  # two partitions, and the registry
        wait_until(lambda: sum(int(str(one["messages"])) for one in command(*flags)[1:]) == 40)
        wait_until(lambda: all(one["messages"] for one in command(*flags)))
        assert [one["lag"] for one in command(*flags)] == [0, 0, 0]
    with shmq.connect(f"{b.url}/mirrored") as there:
        assert values(there.stream("events")) == sorted(sent)
    streams = [one for one in observe(b.monitors)[0].streams if one.origins]
    assert {origin.site for one in streams for origin in one.origins} == {"site-a"}
    assert not [one for one in find(observe(b.monitors)) if "site-a" in one.text]


def test_a_stream_collects_those_of_other_sites(sites: tuple[LocalCluster, LocalCluster]) -> None:
    a, b = sites
    with shmq.connect(f"{a.url}/all") as here, shmq.connect(f"{b.url}/of-b?replicas=1") as there:
        stream = here.create_stream("events", partitions=1)
        stream.append(b"of a")
        there.create_stream("events", partitions=1).append(b"of b")
        flags = (f"{a.url}/all", "collect", "events", "--from", "site-b/of-b")
        command(*flags)
        wait_until(lambda: len(values(stream)) == 2)
        assert values(stream) == [b"of a", b"of b"]
        there.stream("events").append(b"later")
        wait_until(lambda: len(values(stream)) == 3)
        command(*flags)  # again: nothing is taken in twice
        assert values(stream) == [b"later", b"of a", b"of b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mirror", "events", "--site", "site-a"), "is site 'site-a' itself"),
        (("mirror", "events", "--site", "a b"), "--site 'a b' must be 1 to 32"),
        (("collect", "events", "--from", "site-b/wrong"), "namespaces of different names"),
    ],
)
def test_wrong_sites_are_refused(
    sites: tuple[LocalCluster, LocalCluster], arguments: tuple[str, ...], message: str
) -> None:
    a, _ = sites
    with shmq.connect(f"{a.url}/wrong") as here:
        here.ensure_stream("events", partitions=1)
    ran = CliRunner().invoke(cli, ["--url", f"{a.url}/wrong", "cluster", *arguments])
    assert message in ran.output


def test_a_stream_is_made_with_a_mirror_at_another_site(
    sites: tuple[LocalCluster, LocalCluster],
) -> None:
    a, b = sites
    url = f"{a.url}/optional"
    with shmq.connect(url) as here, shmq.connect(f"{b.url}/optional") as there:
        stream = here.create_stream("events", partitions=2, mirror="site-b")
        assert stream.options.mirror == "site-b"
        stream.append_many([b"1", b"2"])
        # The definition keeps it: the command needs no site.
        assert len(command(url, "mirror", "events")) == 3
        wait_until(
            lambda: sum(int(str(o["messages"])) for o in command(url, "mirror", "events")[1:]) > 1
        )
        wait_until(lambda: there.list_streams() != [])
        assert values(there.stream("events")) == [b"1", b"2"]
        assert there.stream("events").options == stream.options
        with pytest.raises(shmq.StreamExists, match="mirror is 'site-b', not None"):
            here.create_stream("events", partitions=2)
        with pytest.raises(shmq.StreamExists, match="mirror is 'site-b', not None"):
            here.ensure_stream("events", if_different="refuse", mirror=None)
        assert here.ensure_stream("events", mirror="site-b").identity == stream.identity
        here.delete_stream("events")
    names = {one.name for one in observe(b.monitors)[0].streams}
    assert "KV_shmq_noptional" in names
    assert not [name for name in names if name.startswith("shmq_noptional")]


def test_the_registry_at_the_other_site_forgets_streams_that_are_gone(
    sites: tuple[LocalCluster, LocalCluster],
) -> None:
    a, b = sites
    with shmq.connect(f"{a.url}/forgets") as here, shmq.connect(f"{b.url}/forgets") as there:
        for name, mirror in (("kept", "site-b"), ("gone", "site-b"), ("local", None)):
            here.create_stream(name, partitions=1, mirror=mirror).append(b"1")
        here.create_queue("orders")
        wait_until(lambda: defined(there) == ["gone", "kept", "local"])
        here.delete_stream("local")  # it has no copy, but its definition has
        here.delete_stream("gone")
        assert defined(there) == ["kept"]
        wait_until(lambda: values(there.stream("kept")) == [b"1"])
        again = here.create_stream("gone", partitions=1, mirror="site-b")
        again.append(b"2")
        wait_until(lambda: defined(there) == ["gone", "kept"])
        wait_until(lambda: values(there.stream("gone")) == [b"2"])
        # The copy keeps one definition of a key, as the registry does.
        here.delete_queue("orders")
        here.create_queue("orders", capacity=10)
        copied = there.queue("orders")
        wait_until(lambda: there.queue("orders").options.capacity == 10)
        assert copied.name == "orders"


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("site-c", "site 'site-c' is not joined with"),
        ("site-a", "is site 'site-a' itself"),
        ("no.site", "site='no.site' must be 1 to 32"),
    ],
)
def test_a_mirror_that_cannot_be_is_refused_and_nothing_is_made(
    sites: tuple[LocalCluster, LocalCluster], site: str, message: str
) -> None:
    a, _ = sites
    with shmq.connect(f"{a.url}/refused") as here:
        with pytest.raises(shmq.InvalidOption, match=message):
            here.create_stream("events", mirror=site)
        assert here.list_streams() == []
    assert not [one for one in observe(a.monitors)[0].streams if "refused" in one.name]


def test_the_command_takes_the_target_of_a_context(
    sites: tuple[LocalCluster, LocalCluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a, _ = sites
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with shmq.connect(f"{a.url}/kept") as here:
        here.create_stream("events", partitions=1, mirror="site-b")
    made = CliRunner().invoke(cli, ["context", "add", "eu", "--url", f"{a.url}/kept"])
    assert made.exit_code == 0, made.output
    ran = CliRunner().invoke(cli, ["--context", "eu", "cluster", "mirror", "events", "--json"])
    assert ran.exit_code == 0, ran.output
    assert [one["name"] for one in json.loads(ran.output)] == [
        "KV_shmq_nkept",
        "shmq_nkept_tevents_p0",
    ]


def test_a_namespace_of_this_host_is_no_cluster() -> None:
    ran = CliRunner().invoke(cli, ["-n", "here", "cluster", "mirror", "events", "--site", "b"])
    assert ran.exit_code == 2
    assert (
        "this works on a cluster, and --namespace says namespace 'here' of this host" in ran.output
    )
