"""Requests about groups and temporary queues in whose middle something else happens."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq.api.contract import unwrapped
from shmq.client.local.broker import LocalBroker
from shmq.client.local.group import LocalLender
from shmq.errors import LockTimeout
from shmq.protocol.messages.group import Join, MemberRequest, Settlement, ShareSettle
from shmq.protocol.opcodes import Type
from shmq.server.config.settings import Limits
from shmq.server.connection.peer import Peer
from shmq.server.handlers.group import Members
from shmq.server.handlers.refusals import Quotas
from shmq.server.handlers.temporary_queues import TemporaryQueues
from tests.support.waiting import eventually


class Here:
    """What the handlers need of a session, of streams and of side threads; chores run at once."""

    def __init__(self, stream: Any = None) -> None:
        self.context = Peer("a test")
        self.stream = stream

    def own(self) -> None: ...

    def attached(self, *_: object) -> Any:
        return self.stream

    def owe(self, _: str, chore: Callable[[], object]) -> None:
        chore()


class Held:
    """A group's state whose lock is held at one call of a method."""

    def __init__(self, state: Any, method: str, call: int) -> None:
        self._state, self._method, self._left = state, method, call

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self._state, name)
        return self._call

    def _call(self, *arguments: Any) -> Any:
        self._left -= 1
        if not self._left:
            raise LockTimeout("it is held")
        return getattr(self._state, self._method)(*arguments)


class Member:
    """A member of a share group, and what it asks."""

    def __init__(self, namespace: str, stream: shmq.Stream) -> None:
        here: Any = Here(unwrapped(stream))
        self._session = here
        self._members = Members(
            here, lambda name: name, Quotas(LocalBroker(namespace), Limits()), here
        )
        wanted = Join({"lease": 3600.0}, "m", shared=True)
        self._id = 0
        self.ask(Type.JOIN, wanted.pack())
        ((_, self._id),) = ((key[1], key[2]) for key in self._members._open[here])
        (self.inner,) = self._members._open[here].values()

    def ask(self, kind: int, rest: bytes) -> bytes:
        asked = MemberRequest("g", 0, self._id, rest)
        return self._members.answers[kind](self._session, "s", asked.pack())

    def take(self) -> list[tuple[int, ...]]:
        answer = self.ask(Type.SHARE_TAKE, struct.pack("!IB", 100, 1))
        return list(struct.iter_unpack("!QIQI", answer[20:]))

    def hold(self, method: str, call: int) -> None:
        """Let one call of the group's state meet a held lock."""
        held: Any = Held(self.inner.store.state, method, call)
        self.inner.store.state = held
        assert isinstance(self.inner.lender, LocalLender)
        self.inner.lender._state = held

    def close(self) -> None:
        self._members.close()


@pytest.fixture
def stream(broker: shmq.Broker) -> Iterator[shmq.Stream]:
    with broker.create_stream("s", partitions=1) as made:
        made.append_many([b"%d" % n for n in range(4)])
        yield made
    broker.delete_stream("s")


@pytest.fixture
def member(namespace: str, stream: shmq.Stream) -> Iterator[Member]:
    made = Member(namespace, stream)
    yield made
    made.close()


@pytest.mark.parametrize(("method", "call"), [("hand", 1), ("hand", 3), ("seats", 1), ("seats", 2)])
def test_what_was_leased_before_a_lock_was_met_is_sent_by_the_repetition(
    member: Member, method: str, call: int
) -> None:
    member.hold(method, call)
    with pytest.raises(LockTimeout):
        member.take()
    assert [row[1:] for row in member.take()] == [(0, n, 0) for n in range(4)]
    assert member.take() == []


def test_a_settlement_goes_on_where_it_met_a_lock(member: Member) -> None:
    receipts = [row[0] for row in member.take()]
    asked = ShareSettle(Settlement.ACK, 0, receipts).pack()
    member.hold("ack", 3)
    with pytest.raises(LockTimeout):
        member.ask(Type.SHARE_SETTLE, asked)
    assert member.ask(Type.SHARE_SETTLE, asked) == b""
    assert member.inner.store.state.numbers()["acked"] == 4


def test_every_lease_is_extended_by_the_repetition_of_an_extension(member: Member) -> None:
    receipts = [row[0] for row in member.take()]
    asked = ShareSettle(Settlement.EXTEND, 3_600_000_000_000, receipts).pack()
    member.hold("extend", 3)
    state: Any = member.inner.store.state
    with pytest.raises(LockTimeout):
        member.ask(Type.SHARE_SETTLE, asked)
    assert member.ask(Type.SHARE_SETTLE, asked) == b""
    assert state._left == -len(receipts)


def test_a_join_that_meets_a_lock_leaves_no_member(
    member: Member, stream: shmq.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = member.inner.store.state.members()

    def begin(_: LocalLender) -> None:
        raise LockTimeout("it is held")

    monkeypatch.setattr(LocalLender, "_begin", begin)
    with pytest.raises(LockTimeout):
        stream.share("g")
    assert member.inner.store.state.members() == before


def test_an_exclusive_queue_that_is_made_as_its_session_ends_is_removed(
    broker: shmq.Broker,
) -> None:
    here: Any = Here()
    temporary = TemporaryQueues(unwrapped(broker), here)
    leaving = threading.Thread(target=temporary.left, args=(here,))

    class Owned(dict[Any, Any]):
        """Another thread ends the session as soon as its queues are looked up."""

        def setdefault(self, key: Any, default: Any = None) -> Any:
            found = super().setdefault(key, default)
            leaving.start()
            eventually(
                lambda: not leaving.is_alive() or temporary._owning.locked(),
                "the session has ended, or waits to",
            )
            return found

    temporary._own = Owned()
    with unwrapped(broker.create_queue("q", exclusive=True)) as made:
        temporary.own(here, made)
        leaving.join()
    assert broker.queue_names() == []
