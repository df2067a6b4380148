"""Each payload is unpacked as it was packed, and one that is cut off is refused as a bad form."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import shmq
from shmq import errors
from shmq.protocol.messages import numbers
from shmq.protocol.messages.exchange import (
    EXCHANGES,
    Bindings,
    Changed,
    ExchangeRequest,
    Route,
    Routed,
    Shown,
    Unsynced,
)
from shmq.protocol.messages.group import (
    GroupsRequest,
    GroupView,
    Join,
    Joined,
    MemberRequest,
    Seats,
    Settlement,
    ShareSettle,
)
from shmq.protocol.messages.named_lease import NamedLease, NamedLeaseState
from shmq.protocol.messages.payload import Numbers, pack_map
from shmq.protocol.messages.queue import (
    QUEUES,
    Create,
    Hello,
    LeasesState,
    List,
    QueueState,
    SchemaAnswer,
    SchemaRequest,
    Select,
)
from shmq.protocol.messages.staging import Publish, Published, Stage, Staged, StagedState
from shmq.protocol.messages.stream import Append, Fetch, Hold, StreamCreate, StreamInfo, StreamLook
from shmq.protocol.messages.table import TableInfo
from shmq.protocol.opcodes import ERRORS, TEXTS, Status
from shmq.protocol.status import Refusal, error_of_status, status_of

_FETCH = Fetch(7, [(0, 5), (3, 1 << 40)], 10, 65_536, 1.5, "key = 'k'")

REQUESTS: list[Any] = [
    Hello("a test"),
    Hello("a test", "t" * 32),
    Create({"capacity": 5}, own=True),
    List(only_names=True),
    Select(5),
    Select(5, "priority = 1"),
    SchemaRequest("get"),
    SchemaRequest("set", {"type": "string"}, "full"),
    ExchangeRequest("create", {"kind": "topic", "alternate": None}),
    ExchangeRequest("unbind", {"target": "q", "key": "a.#"}),
    ExchangeRequest("synced", {"queues": {"q": 7}}),
    StreamCreate({"partitions": 3}),
    StreamLook((1 << 63) - 1),
    Join({"start": "latest"}, "me"),
    Join({"held": 9}, None, shared=True, on_damage="skip"),
    GroupsRequest(7, "list"),
    GroupsRequest(7, "look", "g", 9, {"start": "latest"}),
    GroupsRequest(7, "look", "g", create=False),
    GroupsRequest(0, "delete", "g"),
    Publish("p", 1, ["a", "b"]),
    Staged("p", "sweep", "a"),
    NamedLease(action="lease", holder="h", token=1 << 60, epoch=2, most=3, max_bytes=4, ms=5),
    Route("a.b", "disk", b"\x80", [b"one", b""], {"q": 1}),
    Append(identity=1, partition=2, count=3, block=b"entries"),
    Append(
        identity=1,
        partition=2,
        count=3,
        block=b"entries",
        durable=True,
        compression="zstd",
        raw_bytes=9,
        producer=4,
        sequence=5,
        gaps=True,
    ),
    _FETCH,
    Fetch(7, [(0, 5)], 10, 65_536, None),
    Hold(7, 1, [(0, 5)], _FETCH),
    Hold(7, 1, []),
    MemberRequest("g", 7, 3, b"rest"),
    Seats(True, bytes(12)),
    ShareSettle(Settlement.NACK, 10**9, [1, 2, (1 << 64) - 1]),
    *(
        each(*(hint == "bool" or 7 for hint in each.__annotations__.values()))
        for each in vars(numbers).values()
        if isinstance(each, type) and issubclass(each, Numbers) and each is not Numbers
    ),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_what_is_packed_is_unpacked_as_it_was(request_: Any) -> None:
    assert type(request_).unpack(request_.pack()) == request_


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_what_is_cut_off_is_refused_or_a_shorter_one(request_: Any) -> None:
    whole = request_.pack()
    for end in range(len(whole)):
        try:
            found = type(request_).unpack(whole[:end])
        except Refusal as refusal:
            assert refusal.status == Status.BAD_REQUEST
        else:
            assert found != request_


class Answer:
    """An answer of a server, as far as unpacking reads it."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


_STATS = {field.name: 1 for field in dataclasses.fields(shmq.QueueStats)}
_OFFSETS = shmq.PartitionOffsets(
    partition=0, earliest=1, latest=2, earliest_timestamp=3.0, latest_timestamp=4.0, bytes=5
)
_VERSION = shmq.SchemaVersion(name="q", version=2, schema={}, compatibility="none", at=1.0)

_LEASE = shmq.Lease(
    sequence=1, deliveries=2, priority=0, size=3, holder_pid=4, holder_name="p", expires_in=5.0
)

ANSWERS: list[Any] = [
    QueueState(
        shmq.QueueStats(**{**_STATS, "name": "q"}),  # type: ignore[arg-type]
        shmq.QueueOptions(capacity=5),
        [shmq.Attachment(pid=1, name="p", leases=0, since=2.0, alive=True)],
        7,
        "why",
    ),
    LeasesState([_LEASE], more=True),
    Published(4, None),
    StagedState(None, 3),
    NamedLeaseState(token=5, sequences=bytes(8), receipts=bytes(8), slots=bytes(4)),
    TableInfo(1 << 60, "disk", None),
    Shown("topic", None),
    Changed(True),
    Changed(False, "queue"),
    Bindings([shmq.Binding("q", "queue", "a.b", {"h": 1}, "any")]),
    Unsynced({"q": None, "r": "the disk fails"}),
    Routed(2, 1, 0, {"q": [1, "full", 0, True]}, {"r": 4}),  # type: ignore[dict-item]
    StreamInfo("s", 1 << 63, shmq.StreamOptions(partitions=2), 2, [_OFFSETS], None, [None, 3]),
    Joined(4, {"lease": 0}),
    GroupView({"group_id": 1}, [(1, 2, "me", 3, 4)], [(1, 1, None, 0, None, 2)], {"held": 0}),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda each: type(each).__name__)
def test_an_answer_is_unpacked_as_it_was_packed(answer: Any) -> None:
    assert type(answer).unpack(Answer(answer.pack())) == answer
    if not isinstance(answer, QueueState):  # of which a server may leave out everything but options
        with pytest.raises(shmq.ServerError, match="makes no sense"):
            type(answer).unpack(Answer(b"\xc0"))


@pytest.mark.parametrize(
    "answer",
    [
        SchemaAnswer([_VERSION]),
        SchemaAnswer([], 3),
        SchemaAnswer([], None, "no", "a.b"),
        SchemaAnswer([]),
    ],
)
def test_an_answer_about_a_schema_is_unpacked_as_it_was_packed(answer: SchemaAnswer) -> None:
    assert SchemaAnswer.unpack(Answer(answer.pack()), "q") == answer  # type: ignore[arg-type]


def test_a_list_is_sorted_and_takes_what_a_server_leaves_out_as_none_there() -> None:
    found = QUEUES.unpack(Answer(pack_map([{"name": "b", "new": 1}, {"name": "a", "depth": 3}])))  # type: ignore[arg-type]

    assert [(each.name, each.depth, each.capacity) for each in found] == [("a", 3, 0), ("b", 0, 0)]
    assert QUEUES.unpack(Answer(QUEUES.pack(found))) == found  # type: ignore[arg-type]
    with pytest.raises(shmq.ServerError, match="without a name"):
        EXCHANGES.unpack(Answer(pack_map([{"kind": "topic"}])))  # type: ignore[arg-type]


def test_staged_rows_are_unpacked_as_they_were_packed() -> None:
    asked = Stage("p", 1, "a", 1 << 20)

    found, rows = Stage.unpack_with_rows(asked.pack_with_rows([(b"one", b""), (b"", b"\x80")]))

    assert found == asked
    assert (bytes(rows.data), list(rows.offsets)) == (b"one", [0, 3, 3])
    assert rows.metas is not None
    assert (bytes(rows.metas), list(rows.meta_offsets or ())) == (b"\x80", [0, 0, 1])
    with pytest.raises(Refusal, match="more than the frame can have"):
        Stage.unpack_with_rows(asked.pack_with_rows([])[:-4] + (1 << 31).to_bytes(4, "big"))


@pytest.mark.parametrize("status", TEXTS)
def test_a_client_raises_the_first_error_of_a_status(status: Status) -> None:
    error = error_of_status(status, "queue 'q'", "so the server said")

    assert type(error) is ERRORS[status][0]
    assert ("so the server said" in str(error)) != TEXTS[status][1]
    assert "q" in str(error_of_status(status, "queue 'q'"))


def test_a_server_answers_an_error_with_its_status() -> None:
    assert status_of(errors.PartitionSealed("sealed")) == Status.FENCED
    assert status_of(errors.MessageTooLarge("large")) == Status.TOO_LARGE
    assert status_of(errors.Unauthorized("not a request's")) == Status.INTERNAL
    assert status_of(ValueError("a fault")) == Status.INTERNAL


@pytest.mark.parametrize("kind", [SchemaRequest, GroupsRequest, ExchangeRequest])
@pytest.mark.parametrize("action", [[], {}, 1, None, "no such"])
def test_an_action_of_any_type_is_refused(kind: Any, action: object) -> None:
    with pytest.raises(Refusal):
        kind.unpack(pack_map({"action": action, "group": "g", "schema": {}}))
