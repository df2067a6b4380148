"""The example that runs anywhere: on one host, over TCP and on the cluster, with one URL each."""

from __future__ import annotations

import signal
from pathlib import Path

import shmq
from shmq.extras.nats.cluster.local import LocalCluster
from tests.support.examples import command, printed
from tests.support.server import serve
from tests.support.waiting import eventually


def runs(url: str, namespace: str, log: Path) -> None:
    """Two orders are packed by a worker, which ends on Ctrl-C."""
    with command("anywhere", namespace, log, "app.py", url, "work") as worker:
        assert printed("anywhere", namespace, url, "order", "tea", "3") == ["ordered: 3 tea"]
        assert printed("anywhere", namespace, url, "order", "jam") == ["ordered: 1 jam"]
        worker.says("packed: 1 jam")
        with shmq.connect(url) as broker:
            orders = broker.queue("orders")
            eventually(lambda: _is_done(orders), "both are acknowledged")
        assert worker.ends(signal.SIGINT) == 0, worker.log()
        assert worker.log().splitlines() == ["packed: 3 tea", "packed: 1 jam"]
    assert printed("anywhere", namespace, url, "work", "--idle", "0.2") == []


def _is_done(queue: shmq.Queue) -> bool:
    stats = queue.stats()
    return stats.depth + stats.in_flight == 0


def test_it_runs_on_one_host_and_over_tcp(namespace: str, tmp_path: Path) -> None:
    runs(namespace, namespace, tmp_path / "log")
    with serve(namespace) as server:
        runs(server.url, namespace, tmp_path / "log")


def test_it_runs_on_the_cluster(cluster: LocalCluster, namespace: str, tmp_path: Path) -> None:
    runs(f"{cluster.url}/{namespace}", namespace, tmp_path / "log")


def test_a_wrong_address_is_one_line(namespace: str) -> None:
    (line,) = printed("anywhere", namespace, "shmq://127.0.0.1:1", "order", "tea", code=1)
    assert "127.0.0.1:1" in line
