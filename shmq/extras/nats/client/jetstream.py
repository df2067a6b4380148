"""Making the streams and consumers of JetStream, and checking that they are as was asked."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import nats.errors

from shmq.errors import ConnectionLost, NoSpace, Unsupported
from shmq.extras.nats.client.connection import (
    ApiError,
    CheckThere,
    ClusterConnection,
    passes,
    refused,
)
from shmq.native import _clock as time

#: Errors of JetStream: what is not there, a name that is taken, another last sequence, a stream
#: without room, several replicas at a single server.
NO_STREAM: Final = 10059
NO_MESSAGE: Final = 10037
IN_USE: Final = 10058
WRONG_LAST: Final = frozenset({10071, 10164})  # the second while another change is under way
FULL: Final = 10077
SINGLE: Final = 10074
#: The most messages of one atomic batch.
MOST_TOGETHER: Final = 1000
#: Errors of a batch that another attempt may not meet: too many of them, or given up.
_PASSES: Final = frozenset({10175, 10176, 10202, 10210, 10211})
_KNOWN: Final = 10201
#: Of servers or accounts without room.
NO_ROOM: Final = frozenset({10002, 10023, 10026, 10027, 10028, 10047})


async def create_stream(connection: ClusterConnection, config: Mapping[str, Any]) -> dict[str, Any]:
    """Make the stream, or attach to it; returns what JetStream says of it.

    Raises Unsupported if it is not as was asked: another server ignores what it does not know.
    """
    name = config["name"]
    try:
        made = await connection.api(f"STREAM.CREATE.{name}", config, f"stream {name!r}")
    except ApiError as error:
        if error.number in NO_ROOM:
            raise NoSpace(f"cluster {connection.url}: {error}") from error
        if error.number != IN_USE:
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


class Together(NamedTuple):
    """What became of an atomic batch: published, or some of its messages are known."""

    #: PubAck of the last message; None: some are known.
    answer: dict[str, Any] | None
    attempts: int


async def publish_together(
    connection: ClusterConnection,
    messages: Sequence[tuple[str, bytes, dict[str, str]]],
    until: float,
    *,
    what: str,
    pause: float,
    check_there: CheckThere,
    lost: str,
) -> Together:
    """Publish subjects, bodies and headers in one step, repeated until then (monotonic).

    ``check_there`` raises if there is nothing to publish to. Raises the error of `refused` for a
    refusal, and ConnectionLost with ``lost`` if no answer came in time.
    """
    attempts = 0
    while True:
        try:
            answer = await _send(connection, messages)
        except nats.errors.NoRespondersError:
            await check_there()
            answer = {}
        except (nats.errors.Error, OSError):
            answer = {}
        attempts += 1
        error = answer.get("error") or {}
        if answer and not error:
            return Together(answer, attempts)
        number = error.get("err_code")
        if number == _KNOWN:
            return Together(None, attempts)
        if error and not (passes(error) or number in _PASSES or error.get("code") == 500):
            raise refused(what, error)
        if time.monotonic() > until:
            raise ConnectionLost(lost)
        await asyncio.sleep(pause)


async def _send(
    connection: ClusterConnection, messages: Sequence[tuple[str, bytes, dict[str, str]]]
) -> dict[str, Any]:
    """One attempt: what JetStream answers to the last message, or the error of an earlier one."""
    client = await connection.client()
    batch, last = secrets.token_hex(12), len(messages)
    for number, (subject, body, given) in enumerate(messages, 1):
        headers = given | {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
        if number == last:
            headers["Nats-Batch-Commit"] = "1"
        if number not in (1, last):
            await client.publish(subject, body, headers=headers)
            continue
        came = await client.request(subject, body, timeout=5.0, headers=headers)
        if came.data:
            found: dict[str, Any] = json.loads(came.data)
            if number == last or found.get("error"):
                return found
    return {}


def nanoseconds(stamp: str) -> int:
    """A time of the server in nanoseconds since 1970."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    try:
        then = dt.datetime.fromisoformat(whole).replace(tzinfo=dt.UTC)
    except ValueError:
        return 0
    return math.floor(then.timestamp()) * 10**9 + int(fraction[:9].ljust(9, "0") or 0)
