"""What is wrong with a cluster, from what its servers say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from shmq.extras.nats.client.origin import Origin
from shmq.extras.nats.cluster.findings import find
from shmq.extras.nats.cluster.observation import Replica, Server, StreamState

STREAM = StreamState(
    name="orders",
    leader="a",
    copies=3,
    messages=10,
    bytes=100,
    replicas=(
        Replica(server="b", current=True, offline=False, lag=0),
        Replica(server="c", current=True, offline=False, lag=0),
    ),
)


def server(name: str, **changed: Any) -> Server:
    sound = Server(
        monitor=f"http://{name}:8222",
        name=name,
        version="2.14.0",
        level=4,
        healthy=True,
        syncs=True,
        meta_leader="a",
        storage_limit=1000,
        streams=(STREAM,),
    )
    return dataclasses.replace(sound, **changed)


def texts(*servers: Server) -> list[str]:
    return [f"{one.severity} {one.subject}: {one.text}" for one in find(servers)]


def test_a_sound_cluster_has_no_findings() -> None:
    assert texts(server("a"), server("b"), server("c")) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"problem": "away"}, "critical http://c:8222: away"),
        ({"version": "2.9.10"}, "critical c: it is version 2.9.10"),
        ({"version": "2.15.0"}, "warning : the servers have the versions 2.14.0, 2.15.0"),
        ({"healthy": False}, "critical c: it says that it is not healthy"),
        ({"syncs": False, "sync_interval": 120.0}, "warning c: it syncs every 120 s"),
        ({"storage_used": 900}, "warning c: 900 of 1000 bytes"),
        ({"meta_leader": "b"}, "warning : the servers name different leaders: a, b"),
    ],
)
def test_one_server_that_differs_is_found(changed: dict[str, Any], said: str) -> None:
    found = texts(server("a"), server("b"), server("c", **changed))
    assert any(line.startswith(said) for line in found), found


def test_a_cluster_without_a_leader_is_critical() -> None:
    servers = [server(name, meta_leader="", streams=()) for name in "abc"]
    assert texts(*servers) == [
        "critical : no server leads: more than half of them must run and reach each other"
    ]


def test_two_servers_on_a_host_fail_together() -> None:
    servers = [server(name, monitor=f"http://a:{8222 + at}") for at, name in enumerate("abc")]
    assert texts(*servers) == [
        "notice : several servers are on one host: they fail together with that host"
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"leader": None}, "critical orders: no server leads the stream"),
        ({"copies": 1}, "notice orders: the stream has 1 copies"),
        (
            {"replicas": (Replica(server="b", current=False, offline=True, lag=5),)},
            "warning orders: the copy on b is offline",
        ),
        (
            {"replicas": (Replica(server="b", current=False, offline=False, lag=5),)},
            "warning orders: the copy on b lacks 5 operations",
        ),
        (
            {"origins": (Origin(stream="orders", site="site-b", lag=0, silent=None),)},
            "warning orders: the stream orders of site site-b has never been heard",
        ),
        (
            {"origins": (Origin(stream="orders", site="site-b", lag=10**6, silent=1.0),)},
            "warning orders: it lacks 1000000 messages of orders of site site-b",
        ),
    ],
)
def test_a_stream_that_is_not_well_is_found(changed: dict[str, Any], said: str) -> None:
    streams = (dataclasses.replace(STREAM, **changed),)
    found = texts(*(server(name, streams=streams) for name in "abc"))
    assert [line for line in found if line.startswith(said)], found
    assert len(found) == 1


def test_the_leader_of_a_stream_knows_its_copies_best() -> None:
    stale = Replica(server="a", current=False, offline=False, lag=3)
    seen = dataclasses.replace(STREAM, replicas=(stale,))
    assert texts(server("a"), server("b", streams=(seen,)), server("c", streams=(seen,))) == []
