"""The rows of frameworks, process pools, locks and caches, in the order of their table."""

from __future__ import annotations

from collections.abc import Callable

from bench.frameworks import pools, stores
from bench.frameworks.realtime import Realtime, RealtimeFramework
from bench.frameworks.worker import (
    CELERY,
    DRAMATIQ,
    HUEY,
    IDLE,
    LATENCY,
    LOCAL,
    RABBITMQ,
    REDIS,
    REDIS_PLUS,
    TASKIQ,
    TCP,
    Framework,
    Peer,
    Work,
    Worker,
)
from bench.row import RATE, Figure, Row, beside, times, within

_PEERS: dict[str, tuple[Peer, ...]] = {
    "celery": (REDIS, REDIS_PLUS, RABBITMQ),
    "dramatiq": (REDIS, RABBITMQ),
    "taskiq": (REDIS, RABBITMQ),
    "huey": (REDIS,),
}
#: The bar of the latency, if most of it is the framework's own.
_MOST_LATENCY = {"huey": 1.0}
_FIGURES: dict[Work, Figure] = {"rate": RATE, "latency": LATENCY, "idle": IDLE}
_TITLES: dict[Work, str] = {
    "rate": "tasks sent, run by two processes and acknowledged",
    "latency": "one task, from sending to running, with an idle worker",
    "idle": "CPU of an idle worker, all its processes",
}


def _row(framework: Framework, work: Work) -> Callable[[], Row]:
    def made() -> Row:
        peers = _PEERS[framework.name]
        others = [peer.label for peer in peers]
        figure = _FIGURES[work]
        ours = (LOCAL.label, TCP.label)
        if work == "rate":
            bars = [times(ours[0], others, 1.0), beside(ours[1], others)]
        elif work == "latency":
            most = _MOST_LATENCY.get(framework.name, 0.5)
            bars = [within(ours[0], others, most, figure.key), beside(ours[1], others, figure.key)]
        else:
            bars = [beside(one, others, figure.key) for one in ours]
        return Row(
            key=f"{framework.name}-{work}",
            title=f"{framework.name}: {_TITLES[work]}",
            contestants=[Worker(framework, peer, work) for peer in (LOCAL, TCP, *peers)],
            figures=[figure],
            bars=bars,
            limit="the framework's own Python, in the sender and in the worker",
            visits=3,
            turn=0.5,
        )

    return made


def _realtime(framework: RealtimeFramework, title: str, unit: str) -> Callable[[], Row]:
    def made() -> Row:
        return Row(
            key=f"{framework}-rate",
            title=title,
            contestants=[Realtime(framework, "shmq"), Realtime(framework, "Redis")],
            figures=[Figure(RATE.key, unit)],
            bars=[times("shmq", ["Redis"], 1.0)],
            limit="Python, in the sender and in the receivers",
            visits=3,
            turn=0.5,
        )

    return made


_TASKS: tuple[Callable[[], Row], ...] = tuple(
    _row(framework, work)
    for framework in (CELERY, DRAMATIQ, TASKIQ, HUEY)
    for work in ("rate", "latency", "idle")
)

FRAMEWORKS: tuple[Callable[[], Row], ...] = (
    *_TASKS,
    _realtime(
        "channels", "Channels: group_send to two processes with 50 members each", "deliveries/s"
    ),
    _realtime("socketio", "Socket.IO: an emit that another process reads", "events/s"),
    pools.map_row,
    pools.one_row,
    pools.array_row,
    stores.lock_row,
    stores.django_row,
    stores.cachelib_row,
)
