"""Streams: their list, one of them with its partitions, and what changes them."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import msgspec

import shmq
from shmq.api.options import without_sharing
from shmq.api.stream_options import MAX_RING
from shmq.client.shared.differences import check_same
from shmq.extras.console.access import visible_stream
from shmq.extras.console.api.operation import Answer, Call, Parameter, ensure, operation, view_as
from shmq.extras.console.api.queues import History
from shmq.extras.console.api.rows import PAGE, Page, Table
from shmq.extras.console.problem import Problem
from shmq.host.diagnose.activity import StreamActivity
from shmq.native._stream import MAX_PARTITIONS
from shmq.protocol.opcodes import Right

#: The columns of the list.
COLUMNS: Final = {
    "name": "text",
    "partitions": "number",
    "records": "number",
    "bytes": "bytes",
    "oldest_age": "seconds",
    "rate_in": "number",
    "hot": "number",
    "groups": "number",
    "members": "number",
    "lag": "number",
    "durability": "text",
    "problem": "text",
}
_TABLE: Final = Table(COLUMNS)
_NAME: Final = Parameter("name", "string", "the stream's name", most=255)


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """One partition."""

    partition: int
    #: The offset of the oldest record that can be read.
    earliest: int
    #: The offset that the next record will have.
    latest: int
    #: When the oldest and the newest record were appended, in seconds since 1970.
    earliest_timestamp: float | None
    latest_timestamp: float | None
    bytes: int
    #: Whether it takes no more records because the stream was repartitioned.
    sealed: bool
    behind: int
    created_at: float
    #: Records per second, over the last ten seconds.
    rate: float
    #: The rate as a multiple of the mean.
    share: float
    #: Whether it gets more than three times the mean.
    hot: bool


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """One stream."""

    name: str
    #: The stream's identity, as a string.
    identity: str
    options: dict[str, Any]
    partitions: list[PartitionView]
    #: The groups that the caller may look at.
    groups: list[dict[str, Any]]


class Repartition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many partitions are appended to; more than now."""

    partitions: int


class Repartitioned(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that records are appended to now."""

    open: list[int]


class OffsetAt(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a partition."""

    partition: int
    offset: int


class Offsets(msgspec.Struct, frozen=True, kw_only=True):
    """A place in each partition."""

    items: list[OffsetAt]


def row_of(stream: StreamActivity) -> dict[str, Any]:
    """The stream's row; the numbers of one that cannot be used are 0."""
    return {
        **{name: getattr(stream, name) for name in COLUMNS if hasattr(stream, name)},
        "hot": len(stream.hot),
        "groups": len(stream.groups),
        "members": sum(group.members for group in stream.groups),
        "lag": max((group.total for group in stream.groups), default=0),
    }


@operation(
    "GET",
    "/streams",
    *PAGE,
    Parameter("sort", "string", "largest first, on one page, by this column", None, most=64),
    answer=Page,
    tag="streams",
)
def list_streams(call: Call) -> Page:
    """List streams with their numbers, in pages."""
    found = {
        one.name: visible_stream(call.caller, one)
        for one in call.latest.streams
        if call.caller.sees("stream", one.name)
    }
    if call["sort"] is not None:
        rows = (row_of(one) for one in found.values())
        return _TABLE.largest(call, rows, call["sort"], call["limit"])
    return _TABLE.page(call, found, lambda name: row_of(found[name]))


@operation("GET", "/streams/{name}", _NAME, answer=StreamView, tag="streams")
def get_stream(call: Call) -> StreamView:
    """Show one stream: its options, partitions, rates and groups."""
    call.see("stream", call["name"])
    with call.console.broker.stream(call["name"]) as stream:
        return _make_view(call, stream)


def _make_view(call: Call, stream: shmq.Stream) -> StreamView:
    rates = {rate.partition: rate for rate in stream.rates()}
    partitions = []
    for one in stream.offsets():
        rate = rates.get(one.partition)
        partitions.append(
            PartitionView(
                **dataclasses.asdict(one),
                rate=rate.rate if rate is not None else 0.0,
                share=rate.share if rate is not None else 0.0,
                hot=rate is not None and rate.hot,
            )
        )
    return StreamView(
        name=stream.name,
        identity=str(stream.identity),
        options=stream.options.as_dict(),
        partitions=partitions,
        groups=visible_groups(call, stream),
    )


def visible_groups(call: Call, stream: shmq.Stream) -> list[dict[str, Any]]:
    """The summaries of the groups that the caller may look at."""
    try:
        found = stream.groups()
    except shmq.Unsupported:
        return []
    return [
        dataclasses.asdict(one) for one in found if call.caller.sees_group(stream.name, one.name)
    ]


@operation("PUT", "/streams/{name}", _NAME, body=dict[str, Any], answer=StreamView, tag="streams",
           also=(201,), audit="stream.create")  # fmt: skip
def put_stream(call: Call) -> Answer:
    """Create the stream, or see that it is there with these options.

    201 if it was made, 200 if it existed with these options, 409 with the differences otherwise.
    """
    name, options = call["name"], call.body
    call.need(Right.ADMIN, "stream", name)
    broker = call.console.broker
    stream, status = ensure(name, options, broker.stream, broker.create_stream, shmq.NoSuchStream)
    with stream:
        check_same(stream, without_sharing(options))
        return Answer(value=_make_view(call, stream), status=status)


@operation("PATCH", "/streams/{name}", _NAME, body=dict[str, Any], answer=StreamView, tag="streams",
           audit="stream.alter")  # fmt: skip
def alter_stream(call: Call) -> StreamView:
    """Change options of the stream while it is in use; those that are not named stay."""
    name = call["name"]
    call.need(Right.ADMIN, "stream", name)
    with call.console.broker.stream(name) as stream:
        stream.options.altered(name, call.body, MAX_RING)  # a key need not be a keyword
        call.console.broker.alter_stream(name, **call.body)
        return _make_view(call, stream)


@operation("DELETE", "/streams/{name}", _NAME, tag="streams", status=204, audit="stream.delete")
def delete_stream(call: Call) -> Answer:
    """Delete the stream, all its records and its groups."""
    call.need(Right.ADMIN, "stream", call["name"])
    call.console.broker.delete_stream(call["name"])
    return Answer(status=204)


@operation("POST", "/streams/{name}/repartition", _NAME, body=Repartition, answer=Repartitioned,
           tag="streams", audit="stream.repartition")  # fmt: skip
def repartition_stream(call: Call) -> Repartitioned:
    """Append to more partitions from now on; the old ones keep their records."""
    call.need(Right.ADMIN, "stream", call["name"])
    if not 1 <= call.body.partitions <= MAX_PARTITIONS:
        raise Problem.invalid(f"partitions={call.body.partitions}: give 1 to {MAX_PARTITIONS}")
    with call.console.broker.stream(call["name"]) as stream:
        return Repartitioned(open=list(stream.repartition(call.body.partitions)))


@operation(
    "GET",
    "/streams/{name}/at",
    _NAME,
    Parameter("timestamp", "number", "seconds since 1970", None, 0, 1e10, required=True),
    answer=Offsets,
    tag="streams",
)
def offsets_at(call: Call) -> Offsets:
    """Find the first record of each partition from that time on."""
    call.see("stream", call["name"])
    with call.console.broker.stream(call["name"]) as stream:
        return Offsets(
            items=[
                OffsetAt(partition=p, offset=stream.at(call["timestamp"], p))
                for p in range(stream.partitions)
            ]
        )


@operation("GET", "/streams/{name}/history", _NAME, answer=History, tag="streams")
def stream_history(call: Call) -> History:
    """Show rates, records and age of the last ten minutes."""
    call.see("stream", call["name"])
    with call.console.broker.stream(call["name"]):  # one that does not exist is refused
        series = call.console.observer.history.of("stream", call["name"])
    return view_as(History, series)
