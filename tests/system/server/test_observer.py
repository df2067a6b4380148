"""An observer of a server's queues."""

from __future__ import annotations

from urllib.parse import urlsplit

import psutil

import shmq
from shmq.host.diagnose.activity import MOST_REMOTE, Observer
from tests.support.server import serve


def test_an_observer_sees_all_queues_over_few_connections(namespace: str) -> None:
    names = [f"q{number:03}" for number in range(MOST_REMOTE + 6)]
    with shmq.connect(namespace) as local:
        for name in names:
            local.create_queue(name, dead_letter=None, capacity=8).close()
        with (
            serve(namespace) as server,
            shmq.connect(server.url) as broker,
            Observer(broker, groups=False) as observer,
        ):
            for _ in range(2):
                seen = observer.look(["queue"])
                assert [one.name for one in seen.queues if one.stats] == names
            port = urlsplit(server.url).port
            ours = [
                one
                for one in psutil.Process().net_connections("tcp")
                if one.raddr and one.raddr.port == port and one.status == "ESTABLISHED"
            ]
            assert len(ours) <= MOST_REMOTE + 1  # and the broker's
