"""Copies of streams at another site: mirrors and sources of JetStream, and how far they are.

Sites are clusters that are joined as leaf nodes, each with a JetStream domain of its own, which is
the site's name. A mirror is a copy that only JetStream writes; a stream with sources collects the
records of others. Both are asynchronous: what another site lacks is the lag.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shmq.errors import ConnectionLost, InvalidOption, ShmqError
from shmq.extras.nats.client import names
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.definitions import subjects_of
from shmq.extras.nats.client.jetstream import IN_USE, NO_STREAM, SINGLE
from shmq.extras.nats.client.origin import origins_of, site_of

_SITE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
#: How long a site may take to answer, in seconds.
_PATIENCE: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A stream of JetStream that copies others."""

    name: str
    messages: int
    #: Messages that it lacks.
    lag: int
    #: Seconds since it heard from its origin; None: never.
    silent: float | None


async def check_joined(connection: ClusterConnection, site: str) -> None:
    """Raise InvalidOption unless the site is another one, and answers here."""
    await _own_site(connection, site)

    async def refuse() -> None:
        raise InvalidOption(
            f"site {site!r} is not joined with {connection.url}, or away: its servers must be "
            f"joined as leaf nodes, and have that domain"
        )

    await connection.request(f"$JS.{site}.API.INFO", within=_PATIENCE, check_there=refuse)


async def remove(connection: ClusterConnection, stream: str, partitions: int, site: str) -> None:
    """Have the site remove its copy of a stream, and of all definitions that are gone here.

    Raises ShmqError if it is away.
    """
    for number in range(partitions):
        name = names.partition_stream(connection.namespace, stream, number)
        try:
            await _request_api(connection, site, f"STREAM.DELETE.{name}")
        except ApiError as error:
            if error.number != NO_STREAM:
                raise
    await _forget_gone(connection, site)


async def _forget_gone(connection: ClusterConnection, site: str) -> None:
    """Have the site's copy of the registry forget what is gone here: a mirror copies no removal."""
    registry = names.kv_stream(connection.namespace)

    async def there(verb: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        return await _request_api(connection, site, verb, payload)

    pattern = names.kv_subject(connection.namespace, ">")
    try:
        last = (await _request_api(connection, site, f"STREAM.INFO.{registry}"))["state"][
            "last_seq"
        ]
        copied = [one async for one in subjects_of(there, registry, pattern)]
    except ApiError as error:
        if error.number == NO_STREAM:
            return
        raise
    # Listed after those there: what is defined in the meantime stays.
    kept = {one async for one in subjects_of(connection.api, registry, pattern)}
    for subject in copied:
        if subject not in kept:
            await there(f"STREAM.PURGE.{registry}", {"filter": subject, "seq": last + 1})


async def mirror(
    connection: ClusterConnection,
    stream: str,
    partitions: int,
    site: str,
    copies_there: int | None = None,
) -> list[Copy]:
    """Have the site keep a copy of each partition of a stream, and of the namespace's registry.

    Readers at the site connect to the same namespace there. Copies that are there already stay.
    ``copies_there``: how many servers of the site keep each; None: as many as here, or one if the
    site has a single server.
    Raises InvalidOption, and ShmqError if the site is away or has such streams of its own.
    """
    home = await _own_site(connection, site)
    space = connection.namespace
    wanted = [
        names.kv_stream(space),
        *(names.partition_stream(space, stream, number) for number in range(partitions)),
    ]
    for name in wanted:
        config = {
            "name": name,
            "storage": "file",
            "num_replicas": copies_there or connection.replicas,
            "allow_direct": True,
            "mirror_direct": True,
            "mirror": _make_origin(name, home),
        }
        if name == names.kv_stream(space):  # it keeps as little as the registry itself
            config |= {"max_msgs_per_subject": 1, "allow_msg_ttl": True}
        try:
            made = await _create(connection, site, config)
        except ApiError as error:
            if error.number != SINGLE or copies_there is not None:
                raise
            made = await _create(connection, site, config | {"num_replicas": 1})
        if (made.get("mirror") or {}).get("name") != name:
            raise ShmqError(
                f"site {site!r} has a stream {name!r} of its own: a namespace belongs to one site, "
                f"so connect with another one there"
            )
    return await copies(connection, wanted, site)


async def collect(
    connection: ClusterConnection, stream: str, partitions: int, origins: Sequence[tuple[str, str]]
) -> list[Copy]:
    """Have a stream of this site take in that of each (site, namespace) as well.

    The stream must exist here. A record keeps its partition, and gets an offset of this stream.
    Raises InvalidOption, and ShmqError.
    """
    for site, space in origins:
        home = await _own_site(connection, site)
        if space == connection.namespace:
            raise InvalidOption(
                f"namespace {space!r} of site {site!r} is also the one of {home!r}: sites that are "
                f"joined need namespaces of different names"
            )
    wanted = []
    for number in range(partitions):
        name = names.partition_stream(connection.namespace, stream, number)
        wanted.append(name)
        config = (await _request_api(connection, "", f"STREAM.INFO.{name}"))["config"]
        known = {(one["name"], site_of(one)) for one in config.get("sources") or ()}
        more = []
        for site, space in origins:
            origin = _make_origin(names.partition_stream(space, stream, number), site)
            if (origin["name"], site) not in known:
                # Readers ask for the subject of this stream.
                source = names.partition_subject(space, stream, number)
                here = names.partition_subject(connection.namespace, stream, number)
                origin["subject_transforms"] = [{"src": source, "dest": here}]
                more.append(origin)
        if more:
            config["sources"] = [*(config.get("sources") or ()), *more]
            await _request_api(connection, "", f"STREAM.UPDATE.{name}", config)
    return await copies(connection, wanted, "")


async def copies(connection: ClusterConnection, wanted: Sequence[str], site: str) -> list[Copy]:
    """How far the copies of these names are; ``site`` empty: at this one."""
    return [_copy(await _request_api(connection, site, f"STREAM.INFO.{name}")) for name in wanted]


def _copy(info: Mapping[str, Any]) -> Copy:
    origins = origins_of(info)
    silent = [one.silent for one in origins if one.silent is not None]
    return Copy(
        str(info["config"]["name"]),
        int(info["state"]["messages"]),
        sum(one.lag for one in origins),
        max(silent) if silent and len(silent) == len(origins) else None,
    )


def _make_origin(name: str, site: str) -> dict[str, Any]:
    return {"name": name, "external": {"api": f"$JS.{site}.API", "deliver": ""}}


async def _own_site(connection: ClusterConnection, other: str) -> str:
    """The name of the site that is connected to. Raises InvalidOption for one of no use."""
    if not _SITE.fullmatch(other):
        raise InvalidOption(f"site={other!r} must be 1 to 32 letters, digits, - and _")
    home = str((await connection.api("INFO")).get("domain") or "")
    if not home:
        raise InvalidOption(
            f"cluster {connection.url} has no name of a site: set domain in the jetstream block of "
            "each server"
        )
    if home == other:
        raise InvalidOption(f"cluster {connection.url} is site {other!r} itself: name another one")
    return home


async def _create(
    connection: ClusterConnection, site: str, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The configuration of a stream at the site, which is made if there is none."""
    name = config["name"]
    try:
        made = await _request_api(connection, site, f"STREAM.CREATE.{name}", config)
    except ApiError as error:
        if error.number != IN_USE:
            raise
        made = await _request_api(connection, site, f"STREAM.INFO.{name}")
    found: dict[str, Any] = made["config"]
    return found


async def _request_api(
    connection: ClusterConnection, site: str, verb: str, payload: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The answer of a site's JetStream. Raises ApiError, and ShmqError if it is away."""
    if not site:
        return await connection.api(verb, payload)
    packed = b"" if payload is None else json.dumps(payload).encode()
    try:
        answer = await connection.request(f"$JS.{site}.API.{verb}", packed, within=_PATIENCE)
    except ConnectionLost as error:
        raise ConnectionLost(
            f"site {site!r} gave {connection.url} no answer within {_PATIENCE:g} s: its servers "
            "must be joined as leaf nodes, and have that domain"
        ) from error
    found: dict[str, Any] = json.loads(answer.data)
    if found.get("error"):
        raise ApiError(f"site {site!r}, {verb}", found["error"])
    return found
