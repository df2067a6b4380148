"""Queues and streams on three servers of which some are killed, stopped or old."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.extras.nats.client.names import partition_stream, queue_stream
from shmq.extras.nats.cluster.local import LocalCluster
from tests.support.nats_cluster import OLD_BINARY, PREFIX, running_cluster
from tests.support.waiting import eventually

#: How often the history below is interrupted by the death of a server: SHMQ_KILLS says more.
KILLS = int(os.environ.get("SHMQ_KILLS", "4"))
#: How long a client may need through a failover on a loaded machine, in seconds.
PATIENCE = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path / "cluster") as cluster:
        yield cluster


class History:
    """A producer and a consumer that write down what they were told."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[int] = []
        self.consumed: list[int] = []
        self.problems: list[BaseException] = []
        self._url = url
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._produce, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: object) -> None:
        try:
            assert callable(work)
            work()
        except BaseException as problem:
            self.problems.append(problem)

    def _produce(self) -> None:
        with shmq.connect(self._url, request_timeout=PATIENCE, connect_timeout=PATIENCE) as broker:
            queue = broker.queue("q")
            number = 0
            while not self._ended.is_set():
                queue.put(number, timeout=PATIENCE, dedupe_id=str(number))
                self.acknowledged.append(number)
                number += 1

    def _consume(self) -> None:
        with shmq.connect(self._url, request_timeout=PATIENCE, connect_timeout=PATIENCE) as broker:
            queue = broker.queue("q")
            while True:
                try:
                    message = queue.get(timeout=5.0)
                except shmq.Empty:
                    # A get that was under way when a server stopped may miss what is there.
                    over = self._ended.is_set() and not self._threads[0].is_alive()
                    if over and set(self.acknowledged) <= set(self.consumed):
                        return
                    continue
                self.consumed.append(message.body)
                with contextlib.suppress(shmq.LeaseExpired):
                    message.ack()

    def grows(self) -> None:
        """Return once both have gone on."""
        before = len(self.acknowledged), len(self.consumed)
        deadline = time.monotonic() + PATIENCE
        while len(self.acknowledged) <= before[0] or len(self.consumed) <= before[1]:
            assert not self.problems, self.problems
            assert time.monotonic() < deadline, "nothing is put or consumed any more"
            threading.Event().wait(0.01)

    def end(self) -> None:
        """Let the consumer empty the queue, and compare."""
        self._ended.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)
            assert not thread.is_alive()
        assert not self.problems, self.problems
        assert set(self.acknowledged) == set(self.consumed)
        again = len(self.consumed) - len(set(self.consumed))
        print(f"{len(self.acknowledged)} acknowledged, {again} consumed twice")


def _queue(cluster: LocalCluster) -> None:
    with shmq.connect(cluster.url, connect_timeout=PATIENCE) as broker:
        broker.create_queue(
            "q", dedupe_window=300, visibility_timeout=5, max_deliveries=None, priorities=1
        )


@pytest.mark.watchdog(3600)
def test_what_was_acknowledged_is_consumed_over_the_deaths_of_leaders(
    cluster: LocalCluster,
) -> None:
    _queue(cluster)
    history = History(cluster.url)
    for _ in range(KILLS):
        history.grows()
        leader = cluster.leader_of(queue_stream("default", "q"))
        if leader is not None:
            leader.kill()
            history.grows()
            cluster.restart(leader)
    history.end()


@pytest.mark.watchdog(600)
def test_a_server_that_stands_still_past_the_election_is_gone_on_without(
    cluster: LocalCluster,
) -> None:
    _queue(cluster)
    history = History(cluster.url)
    history.grows()
    leader = cluster.leader_of(queue_stream("default", "q"))
    assert leader is not None
    leader.pause()
    eventually(
        lambda: cluster.leader_of(queue_stream("default", "q")) not in (None, leader),
        "another server leads",
    )
    history.grows()
    leader.resume()
    history.grows()
    history.end()


@pytest.mark.watchdog(600)
def test_nothing_is_lost_when_all_servers_are_restarted(cluster: LocalCluster) -> None:
    with shmq.connect(cluster.url, request_timeout=PATIENCE) as broker:
        queue, stream = broker.create_queue("q", priorities=1), broker.create_stream("s", 2)
        assert queue.put_many(range(2000)) == 2000
        stream.append_many(range(1500), partition=1)
        group = stream.group("g")
        with group.join() as member:
            member.poll(limit=10, timeout=PATIENCE)
            member.commit()
        committed = group.committed()
        for node in cluster.nodes:
            node.kill()
        cluster.start(prefix=PREFIX)
        assert queue.put("last").sequence == 2001
        bodies: list[Any] = []
        while len(bodies) < 2001:
            messages = queue.get_many(500, timeout=PATIENCE)
            bodies += [message.body for message in messages]
            assert queue.ack_many(messages) == []
        assert sorted(bodies[:-1]) == list(range(2000))
        assert stream.group("g").committed() == committed
        assert [record.body for record in stream.reader({1: 1400}, [1], timeout=5)] == list(
            range(1400, 1500)
        )


@pytest.mark.watchdog(600)
def test_a_late_acknowledgement_is_refused_over_a_failover(cluster: LocalCluster) -> None:
    with shmq.connect(cluster.url, request_timeout=PATIENCE) as broker:
        queue = broker.create_queue("q", priorities=1, visibility_timeout=2)
        queue.put("a")
        late = queue.get(timeout=PATIENCE)
        leader = cluster.leader_of(queue_stream("default", "q"))
        assert leader is not None
        leader.kill()
        holder = queue.get(timeout=PATIENCE)
        holder.extend(PATIENCE)  # what follows waits for servers that elect a leader
        with pytest.raises(shmq.LeaseExpired):
            late.ack()
        holder.ack()
        with pytest.raises(shmq.Empty):
            queue.get(timeout=4)


@pytest.mark.watchdog(600)
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_what_is_under_way_when_a_leader_goes_is_put_and_acknowledged_once(
    cluster: LocalCluster, is_killed: bool
) -> None:
    _queue(cluster)
    with shmq.connect(cluster.url, request_timeout=PATIENCE) as broker:
        queue = broker.queue("q")
        leader = cluster.leader_of(queue_stream("default", "q"))
        assert leader is not None
        with queue.pipeline(64) as pipeline:
            for number in range(600):
                if number == 300:
                    leader.kill() if is_killed else leader.pause()
                pipeline.put(number)
        assert pipeline.taken == 600
        assert queue.qsize() == 600
        if is_killed:
            cluster.restart(leader)
        else:
            leader.resume()
        messages = queue.get_many(64, timeout=PATIENCE)
        leader = cluster.leader_of(queue_stream("default", "q"))
        assert leader is not None
        leader.kill() if is_killed else leader.pause()
        assert set(queue.ack_many(messages)) <= {message.receipt for message in messages}
        came = {message.body for message in messages}
        while len(came) < 600:
            messages = queue.get_many(64, timeout=PATIENCE)
            came |= {message.body for message in messages}
            queue.ack_many(messages)
        assert came == set(range(600))
        if not is_killed:
            leader.resume()
        eventually(queue.empty, "no acknowledgement was lost")


@pytest.mark.watchdog(600)
def test_a_follower_reads_on_when_the_leader_of_its_partition_dies(cluster: LocalCluster) -> None:
    with shmq.connect(cluster.url, request_timeout=PATIENCE) as broker:
        stream = broker.create_stream("s", 1)
        stream.append("a")
        reader = stream.reader(timeout=PATIENCE)
        assert next(reader).body == "a"
        leader = cluster.leader_of(partition_stream("default", "s", 0))
        assert leader is not None
        leader.kill()
        assert stream.append("b").offset == 1
        assert next(reader).body == "b"


@pytest.mark.watchdog(600)
@pytest.mark.skipif(not OLD_BINARY.exists(), reason="no old server is installed")
def test_a_cluster_with_one_old_server_is_refused(cluster: LocalCluster) -> None:
    _queue(cluster)
    old = cluster.nodes[2]
    old.kill()
    old.configure(f"listen: 127.0.0.1:{old.ports.client}\n")  # it knows no sync_interval
    old.start(OLD_BINARY, PREFIX)
    eventually(lambda: _is_refused(cluster.url), "the old server says its version")


def _is_refused(url: str) -> bool:
    try:
        shmq.connect(url).close()
    except shmq.Unsupported as error:
        assert "2.9" in str(error)
        return True
    return False
