"""Making the streams and consumers of JetStream, and checking that they are as was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shmq.client.nats.connection import ApiError, ClusterConnection
from shmq.errors import NoSpace, Unsupported

__all__ = [
    "NO_CONSUMER",
    "NO_STREAM",
    "check_echo",
    "create_consumer",
    "create_stream",
    "delete_stream",
]

#: The errors of JetStream for what is not there.
NO_STREAM: Final = 10059
NO_CONSUMER: Final = 10014
_IN_USE: Final = 10058
_NO_ROOM: Final = frozenset({10002, 10023, 10026, 10027, 10028, 10047})


async def create_stream(connection: ClusterConnection, config: Mapping[str, Any]) -> dict[str, Any]:
    """Make the stream, or attach to it; returns what JetStream says of it.

    Raises Unsupported if it is not as was asked: another server ignores what it does not know.
    """
    name = config["name"]
    try:
        made = await connection.api(f"STREAM.CREATE.{name}", config, f"stream {name!r}")
    except ApiError as error:
        if error.number in _NO_ROOM:
            raise NoSpace(f"cluster {connection.url}: {error}") from error
        if error.number != _IN_USE:
            raise
        made = await connection.api(f"STREAM.INFO.{name}")
    check_echo(connection, f"stream {name!r}", config, made["config"])
    return made


async def create_consumer(
    connection: ClusterConnection, stream: str, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Make the durable consumer, or attach to it. Raises Unsupported as `create_stream` does."""
    name = config["durable_name"]
    made = await connection.api(
        f"CONSUMER.CREATE.{stream}.{name}",
        {"stream_name": stream, "config": {"name": name, **config}},
        f"consumer {name!r} of stream {stream!r}",
    )
    check_echo(connection, f"consumer {name!r} of stream {stream!r}", config, made["config"])
    return made


def check_echo(
    connection: ClusterConnection, what: str, asked: Mapping[str, Any], echoed: Mapping[str, Any]
) -> None:
    """Raise Unsupported if the configuration differs from what was asked."""
    for key, value in asked.items():
        has = echoed.get(key)
        if has != value and not (not has and not value):
            raise Unsupported(
                f"cluster {connection.url}: {what} has {key}={has!r}, where {value!r} was asked "
                f"for: a server is too old for it, or it was made by another program"
            )


async def delete_stream(connection: ClusterConnection, stream: str) -> None:
    """Delete a stream of JetStream, if it is there."""
    try:
        await connection.api(f"STREAM.DELETE.{stream}")
    except ApiError as error:
        if error.number != NO_STREAM:
            raise
