"""What the servers of a cluster say of themselves, at one moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from shmq.errors import ShmqError
from shmq.extras.nats.client.origin import Origin, origins_of
from shmq.extras.nats.cluster import monitor


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A copy of a stream that does not lead."""

    server: str
    current: bool
    offline: bool
    #: Operations that it lacks.
    lag: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A stream of JetStream as its leader sees it."""

    name: str
    leader: str | None
    copies: int
    messages: int
    bytes: int
    replicas: tuple[Replica, ...]
    #: The streams of other sites that this one copies.
    origins: tuple[Origin, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server; ``problem`` says why it did not answer, and then the rest is empty."""

    monitor: str
    problem: str | None = None
    name: str = ""
    version: str = ""
    #: The level of JetStream's interface: servers of different levels have different features.
    level: int = 0
    cluster: str = ""
    domain: str = ""
    healthy: bool = False
    #: Whether a message is on the disk before it is acknowledged.
    syncs: bool = False
    #: How often it syncs otherwise, in seconds.
    sync_interval: float = 0.0
    meta_leader: str = ""
    storage_used: int = 0
    storage_limit: int = 0
    streams: tuple[StreamState, ...] = ()

    @property
    def host(self) -> str:
        """The host of its monitor."""
        return self.monitor.split("://", 1)[-1].rsplit(":", 1)[0]


def observe(monitors: Iterable[str]) -> list[Server]:
    """Every server, in the order of their monitors."""
    return [_read_server(one) for one in monitors]


def _read_server(where: str) -> Server:
    try:
        about = monitor.ask(where, "varz")
        store = monitor.ask(where, "jsz", streams=1, config=1, accounts=1)
    except ShmqError as error:
        return Server(monitor=where, problem=str(error))
    try:
        return _read(where, about, store)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Server(monitor=where, problem=f"its answer cannot be read: {error!r}")


def _read(where: str, about: dict[str, Any], store: dict[str, Any]) -> Server:
    config = store.get("config") or {}
    meta = store.get("meta_cluster") or {}
    return Server(
        monitor=where,
        problem="JetStream is disabled there" if store.get("disabled") else None,
        name=str(about["server_name"]),
        version=str(about["version"]),
        level=int((store.get("api") or {}).get("level", 0)),
        cluster=str((about.get("cluster") or {}).get("name", "")),
        domain=str(config.get("domain", "")),
        healthy=monitor.is_healthy(where),
        syncs=bool(config.get("sync_always")),
        sync_interval=int(config.get("sync_interval", 0)) / 1e9,
        meta_leader=str(meta.get("leader", "")),
        storage_used=int(store.get("storage", 0)),
        storage_limit=int(config.get("max_storage", 0)),
        streams=tuple(_read_stream(one) for one in monitor.streams_of(store)),
    )


def _read_stream(said: dict[str, Any]) -> StreamState:
    cluster = said.get("cluster") or {}
    state = said.get("state") or {}
    replicas = tuple(
        Replica(
            server=str(one.get("name", "")),
            current=bool(one.get("current")),
            offline=bool(one.get("offline")),
            lag=int(one.get("lag", 0)),
        )
        for one in cluster.get("replicas") or ()
    )
    return StreamState(
        name=str(said["name"]),
        leader=cluster.get("leader") or None,
        copies=int((said.get("config") or {}).get("num_replicas", 1)),
        messages=int(state.get("messages", 0)),
        bytes=int(state.get("bytes", 0)),
        replicas=replicas,
        origins=origins_of(said),
    )
