"""A cluster of three servers for the tests of a module, and both sides of a bridge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from shmq.extras.nats.cluster.local import LocalCluster
from tests.support.bridge import Bridged
from tests.support.nats_cluster import running_cluster


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("nats") / "cluster") as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: LocalCluster) -> LocalCluster:
    """The same, with all servers running and current."""
    for node in servers.nodes:
        if node.pid is None:
            servers.restart(node, wait=False)
        else:
            node.resume()
    servers.wait_ready()
    return servers


@pytest.fixture
def bridged(cluster: LocalCluster, namespace: str, broker: shmq.Broker) -> Iterator[Bridged]:
    url = f"{cluster.url}/{namespace}"
    with shmq.connect(url) as there:
        yield Bridged(namespace, url, broker, there)
