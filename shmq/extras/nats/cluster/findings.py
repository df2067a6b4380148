"""What is wrong with a cluster, or will be: in plain words, from what its servers say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from shmq.errors import ShmqError
from shmq.extras.nats.client.version import OLDEST, parse_version
from shmq.extras.nats.cluster.observation import Server, StreamState

#: A copy that lacks more operations than this is far behind.
FAR_BEHIND: Final = 10_000
#: A stream of another site that was not heard for so many seconds is away.
SILENT: Final = 60.0
#: The storage of a server is nearly full from this share on.
NEARLY_FULL: Final = 0.85

Severity = Literal["critical", "warning", "notice"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that somebody should look at."""

    #: ``"critical"``: messages may be lost, or work is stopped; ``"warning"``; ``"notice"``.
    severity: Severity
    #: The server or the stream that it is about; empty: the whole cluster.
    subject: str
    text: str


def find(servers: Sequence[Server]) -> list[Finding]:
    """All findings, the worst first."""
    answered = [server for server in servers if server.problem is None]
    found = [
        *(Finding("critical", s.monitor, s.problem) for s in servers if s.problem is not None),
        *(one for server in answered for one in _check_server(server)),
        *_check_cluster(servers, answered),
        *(one for stream in leading(answered) for one in _check_stream(stream, answered)),
    ]
    order = ("critical", "warning", "notice")
    return sorted(found, key=lambda one: order.index(one.severity))


def leading(servers: Sequence[Server]) -> list[StreamState]:
    """Each stream once, as its leader sees it, or as any server does if none leads."""
    best: dict[str, StreamState] = {}
    for server in servers:
        for stream in server.streams:
            if stream.name not in best or stream.leader in {None, server.name}:
                best[stream.name] = stream
    return [best[name] for name in sorted(best)]


def _check_server(server: Server) -> Iterator[Finding]:
    oldest = ".".join(map(str, OLDEST))
    try:
        old = parse_version(server.version) < OLDEST
    except ShmqError:
        old = True
    if old:
        yield Finding(
            "critical",
            server.name,
            f"it is version {server.version}, which ignores delays and times to live without an "
            f"error: install {oldest} or later",
        )
    if not server.healthy:
        yield Finding("critical", server.name, "it says that it is not healthy: see its log")
    if not server.syncs:
        yield Finding(
            "warning",
            server.name,
            f"it syncs every {server.sync_interval:g} s: a power failure of several servers loses "
            "acknowledged messages; set sync_interval: always, and until then do not connect "
            'with sync="always"',
        )
    if server.storage_limit and server.storage_used > NEARLY_FULL * server.storage_limit:
        yield Finding(
            "warning",
            server.name,
            f"{server.storage_used} of {server.storage_limit} bytes for messages are used: add "
            "disk, or let streams keep less",
        )


def _check_cluster(servers: Sequence[Server], answered: Sequence[Server]) -> Iterator[Finding]:
    versions = sorted({server.version for server in answered})
    if len(versions) > 1:
        yield Finding(
            "warning",
            "",
            f"the servers have the versions {', '.join(versions)}: finish the upgrade before "
            "features of the newer one are used",
        )
    if len({server.syncs for server in answered}) > 1:
        yield Finding("warning", "", "some servers sync always and some do not: make them equal")
    leaders = {server.meta_leader for server in answered if server.meta_leader}
    if len(servers) > 1 and not leaders:
        yield Finding(
            "critical", "", "no server leads: more than half of them must run and reach each other"
        )
    if len(leaders) > 1:
        yield Finding(
            "warning", "", f"the servers name different leaders: {', '.join(sorted(leaders))}"
        )
    if len(servers) < 3:
        yield Finding(
            "notice", "", f"{len(servers)} servers were asked: with fewer than 3 none may fail"
        )
    elif len({server.host for server in servers}) < len(servers):
        yield Finding(
            "notice", "", "several servers are on one host: they fail together with that host"
        )


def _check_stream(stream: StreamState, servers: Sequence[Server]) -> Iterator[Finding]:
    clustered = any(server.meta_leader for server in servers)
    if clustered and stream.leader is None:
        yield Finding("critical", stream.name, "no server leads the stream: no put is accepted")
    if clustered and stream.copies < 3:
        yield Finding(
            "notice",
            stream.name,
            f"the stream has {stream.copies} copies: it is away while their servers are",
        )
    for replica in stream.replicas:
        if replica.offline:
            yield Finding("warning", stream.name, f"the copy on {replica.server} is offline")
        elif replica.lag > FAR_BEHIND or (not replica.current and replica.lag):
            yield Finding(
                "warning",
                stream.name,
                f"the copy on {replica.server} lacks {replica.lag} operations",
            )
    for origin in stream.origins:
        place = f" of site {origin.site}" if origin.site else ""
        if origin.silent is None or origin.silent > SILENT:
            since = "never" if origin.silent is None else f"not for {origin.silent:.0f} s"
            yield Finding(
                "warning", stream.name, f"the stream {origin.stream}{place} has {since} been heard"
            )
        if origin.lag > FAR_BEHIND:
            yield Finding(
                "warning", stream.name, f"it lacks {origin.lag} messages of {origin.stream}{place}"
            )
