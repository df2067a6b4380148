"""The bridge while servers of the cluster, and the bridge itself, are killed and stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

import shmq
from shmq.extras.nats.bridge.config import Backward, Forward, Mirror
from shmq.extras.nats.client.names import partition_stream, queue_stream
from shmq.extras.nats.cluster.local import LocalCluster
from shmq.extras.nats.cluster.monitor import leader_of
from tests.support.bridge import Bridged, bridge_process, take_all, wait_until

ORDERS = Forward(queue="orders")
COUNT = 3000


def leader_killed(cluster: LocalCluster, stream: str) -> None:
    node = cluster.leader_of(stream)
    assert node is not None
    node.kill()
    wait_until(lambda: cluster.leader_of(stream) not in {None, node})
    cluster.restart(node)


def follower_stopped(cluster: LocalCluster, stream: str) -> None:
    node = next(one for one in cluster.nodes if one is not cluster.leader_of(stream))
    node.pause()
    threading.Event().wait(6.0)  # longer than an election takes
    node.resume()
    cluster.wait_ready()


def leader_stopped(cluster: LocalCluster, stream: str) -> None:
    node = cluster.leader_of(stream)
    assert node is not None
    node.pause()
    others = [one.monitor for one in cluster.nodes if one is not node]
    wait_until(lambda: _leader(others, stream) not in {None, node.name})
    node.resume()
    cluster.wait_ready()


def all_restarted(cluster: LocalCluster, _: str) -> None:
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        cluster.restart(node, wait=False)
    cluster.wait_ready()


def _has_acked(queue: shmq.Queue, count: int) -> bool:
    return queue.stats().acked >= count


def _has_put(queue: shmq.Queue, count: int) -> bool:
    return queue.stats().put >= count


def _leader(monitors: list[str], stream: str) -> str | None:
    return leader_of(monitors, stream)


@pytest.mark.parametrize(
    "disturb", [leader_killed, follower_stopped, leader_stopped, all_restarted]
)
def test_nothing_is_lost_or_doubled_while_servers_fail(
    bridged: Bridged, cluster: LocalCluster, disturb: Callable[[LocalCluster, str], None]
) -> None:
    queue = bridged.here.create_queue("orders", capacity=2 * COUNT)
    stream = queue_stream(bridged.namespace, "orders")
    queue.put_many(range(COUNT))
    with bridged.bridge(ORDERS, drain=False) as running:
        wait_until(lambda: running.numbers()[0].sent > 0)
        disturb(cluster, stream)
        queue.put_many(range(COUNT, COUNT + 100))  # goes on being put here all the time
        wait_until(lambda: not running.wait(0) and _has_acked(queue, COUNT + 100))
    found = take_all(bridged.there.queue("orders"), COUNT + 100)
    assert sorted(one.body for one in found) == list(range(COUNT + 100))


def test_a_queue_keeps_what_is_put_while_the_whole_cluster_is_away(
    bridged: Bridged, cluster: LocalCluster
) -> None:
    queue = bridged.here.create_queue("orders", capacity=COUNT)
    bridged.drain(ORDERS)  # makes the queue there
    for node in cluster.nodes:
        node.kill()
    queue.put_many(range(COUNT))
    with bridged.bridge(ORDERS) as running:
        wait_until(lambda: queue.stats().depth == COUNT and not running.numbers()[0].connected)
        for node in cluster.nodes:
            cluster.restart(node, wait=False)
        cluster.wait_ready()
        assert running.wait(120), running.numbers()
    found = take_all(bridged.there.queue("orders"), COUNT)
    assert sorted(one.body for one in found) == list(range(COUNT))


@pytest.mark.parametrize("kills", [4])
def test_a_bridge_that_is_killed_again_and_again_takes_each_message_once(
    bridged: Bridged, kills: int
) -> None:
    queue = bridged.here.create_queue("orders", capacity=COUNT, max_deliveries=1)
    queue.put_many(range(COUNT))
    arguments = ("--to", bridged.url, "--forward", "orders")
    for at in range(1, kills + 1):
        with bridge_process(bridged.namespace, *arguments) as process:
            wait_until(partial(_has_acked, queue, at * COUNT // (kills + 2)))
            process.kill()
            process.wait()
    bridged.drain(ORDERS)
    found = take_all(bridged.there.queue("orders"), COUNT)
    assert sorted(one.body for one in found) == list(range(COUNT))


def test_a_backward_bridge_that_is_killed_takes_each_message_once(bridged: Bridged) -> None:
    source = bridged.there.create_queue("prices", visibility_timeout=2.0, max_deliveries=None)
    source.put_many(range(1000))
    target = bridged.here.create_queue("prices", dedupe_window=600, overflow="block")
    for at in (1, 2):
        with bridge_process(
            bridged.namespace, "--to", bridged.url, "--backward", "prices"
        ) as process:
            wait_until(partial(_has_put, target, at * 300))
            process.kill()
            process.wait()
    bridged.drain(Backward(queue="prices"))
    found = take_all(target, 1000)
    assert sorted(one.body for one in found) == list(range(1000))


@pytest.mark.parametrize("disturb", [leader_killed, all_restarted])
def test_a_mirror_takes_each_record_once_while_servers_fail(
    bridged: Bridged, cluster: LocalCluster, disturb: Callable[[LocalCluster, str], None]
) -> None:
    stream = bridged.here.create_stream("events", partitions=1)
    sent = [b"%d" % at for at in range(COUNT)]
    stream.append_many(sent, partition=0)
    with bridged.bridge(Mirror(stream="events")) as running:
        wait_until(lambda: running.numbers()[0].sent > 0)
        disturb(cluster, partition_stream(bridged.namespace, "events", 0))
        assert running.wait(120), running.numbers()
    there, found = bridged.there.stream("events"), list[bytes]()
    while len(found) < COUNT:
        records = there.read(0, len(found))
        assert len(records)
        found += [bytes(one.value) for one in records]
    assert found == sent
    assert there.latest(0) == COUNT
