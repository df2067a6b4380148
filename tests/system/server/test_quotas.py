"""Quotas: how much clients may make, and what is counted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

import shmq
from shmq.api.keywords import QueueKeywords
from shmq.api.names import staging_name
from shmq.protocol.opcodes import Status, Type
from tests.support.peer import Peer, name_of
from tests.system.server.conftest import Serve

pytestmark = pytest.mark.prove

ONE, TWO = "1" * 40, "2" * 40
SMALL: QueueKeywords = {"capacity": 16, "arena_bytes": 1 << 16, "dead_letter": None}
RING = 1 << 20


def of_namespace(**quota: int) -> dict[str, Any]:
    return {"namespace": quota}


def test_a_queue_over_the_quota_is_refused_with_limit_count_and_remedy(
    served: Serve, namespace: str
) -> None:
    server = served(limits=of_namespace(queues=3))
    with shmq.connect(server.url) as remote:
        remote.create_queue("a", capacity=16, arena_bytes=1 << 16)  # and its dead-letter queue
        with pytest.raises(shmq.NoSpace) as refusal:
            remote.create_queue("b", capacity=16, arena_bytes=1 << 16)
        told = str(refusal.value)
        assert told.startswith("limits.namespace.queues=3: ")
        assert f"namespace {namespace!r} has 2 queues" in told
        assert "'b', 'b.dlq' would be 2 more: delete some, or have the server's limit" in told

        remote.create_queue("b", **SMALL)
        remote.create_queue("b", **SMALL)
        assert remote.ensure_queue("b").qsize() == 0
        remote.delete_queue("a.dlq")
        remote.create_queue("c", **SMALL)
        assert remote.queue_names() == ["a", "b", "c"]


def test_what_local_programs_make_counts_and_is_not_bound(served: Serve, namespace: str) -> None:
    with shmq.connect(namespace) as here:
        for name in ("a", "b", "c"):
            here.create_queue(name, **SMALL)
        server = served(limits=of_namespace(queues=2))
        with shmq.connect(server.url) as remote:
            with pytest.raises(shmq.NoSpace, match="has 3 queues"):
                remote.create_queue("d", **SMALL)
            remote.queue("a").put("x")
        here.create_queue("d", **SMALL)


def test_streams_and_groups_have_quotas(served: Serve) -> None:
    server = served(limits=of_namespace(streams=1, groups=2))
    with shmq.connect(server.url) as remote:
        stream = remote.create_stream("events", 1, ring_bytes=RING)
        with pytest.raises(shmq.NoSpace, match=r"limits.namespace.streams=1: .* has 1 streams"):
            remote.create_stream("more", 1, ring_bytes=RING)
        stream.group("a").join().close()
        stream.group("b").lag()
        asks: list[Callable[[], object]] = [
            lambda: stream.group("c").join(),
            lambda: stream.group("c").lag(),
            lambda: stream.group("c").reset("earliest"),
            lambda: stream.share("c"),
        ]
        for ask in asks:
            with pytest.raises(shmq.NoSpace, match=r"groups=2: .*'events/c' would be 1 more"):
                ask()
        with pytest.raises(shmq.NoSuchGroup):
            stream.group("c", create=False)
        stream.group("a").join().close()
        stream.delete_group("b")
        stream.group("c").join().close()
        assert [each.name for each in stream.groups()] == ["a", "c"]


def test_the_bytes_of_queues_and_partitions_have_a_quota(served: Serve, namespace: str) -> None:
    server = served(limits=of_namespace(bytes=8 << 20))
    with shmq.connect(server.url) as remote:
        remote.create_queue("jobs", capacity=16, arena_bytes=2 << 20, dead_letter=None)
        stream = remote.create_stream("events", 2, ring_bytes=RING)
        with pytest.raises(shmq.NoSpace, match=r"limits.namespace.bytes=8388608: .* 'big' would"):
            remote.create_queue("big", capacity=16, arena_bytes=8 << 20, dead_letter=None)
        with pytest.raises(shmq.NoSpace, match=r"'more' would take \d+ more"):
            remote.create_stream("more", 8, ring_bytes=RING)
        with pytest.raises(shmq.NoSpace, match="new partitions would take"):
            stream.repartition(4)
        remote.delete_queue("jobs")
        stream.repartition(4)
        assert remote.stream("events").partitions == 6
    with shmq.connect(namespace) as here:
        assert [queue.name for queue in here.list_queues()] == []


def test_a_staging_queue_counts(served: Serve) -> None:
    server = served(limits=of_namespace(queues=2))
    with shmq.connect(server.url) as remote:
        jobs = remote.create_queue("jobs", **SMALL)
        for batch in (1, 2):
            jobs.staged_publisher("one").stage(batch, "part", [(b"x", {})], staging_bytes=1 << 16)
        told = staging_name("jobs", "two")
        with pytest.raises(shmq.NoSpace, match=f"'{told}' would be 1 more"):
            jobs.staged_publisher("two").stage(1, "part", [(b"x", {})], staging_bytes=1 << 16)


def test_each_token_has_its_own_and_what_it_may_administer_counts(
    served: Serve, namespace: str
) -> None:
    tokens = {ONE: {"admin": ["one.*"], "consume": ["one.s/*"]}, TWO: {"admin": ["two.*"]}}
    server = served(tokens=tokens, limits={"token": {"queues": 2, "groups": 1}})
    with shmq.connect(namespace) as here:
        here.create_queue("other", **SMALL)
        here.create_queue("one.made.here", **SMALL)
    with shmq.connect(server.url, token=ONE) as one, shmq.connect(server.url, token=TWO) as two:
        one.create_queue("one.a", **SMALL)
        with pytest.raises(shmq.NoSpace, match=r"limits.token.queues=2: token 'token 0' has 2"):
            one.create_queue("one.b", **SMALL)
        two.create_queue("two.a", **SMALL)
        two.create_queue("two.b", **SMALL)
        stream = one.create_stream("one.s", 1, ring_bytes=RING)
        stream.group("a").join().close()
        with pytest.raises(shmq.NoSpace, match=r"limits\.token\.groups=1"):
            stream.group("b").join()

    server.restart(tokens=tokens, limits={"token": {"queues": 2}})
    with shmq.connect(server.url, token=TWO) as two, pytest.raises(shmq.NoSpace):
        two.create_queue("two.c", **SMALL)

    server.reload(tokens=tokens, limits={"token": {"queues": 3}})
    with shmq.connect(server.url, token=TWO) as two:
        two.create_queue("two.c", **SMALL)


def test_of_many_at_once_no_more_are_made_than_the_quota_has_room_for(served: Serve) -> None:
    server = served(workers=3, limits=of_namespace(queues=1))
    options = msgpack.packb(SMALL)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server)) for _ in range(9)]
        rounds = 0
        for _ in range(20):
            for number, peer in enumerate(peers):
                peer.post(Type.CREATE, name_of(f"q{number}") + options)
            statuses = [peer.receive().status for peer in peers]
            made = [f"q{n}" for n, status in enumerate(statuses) if status == Status.OK]
            assert len(made) <= 1, statuses
            assert set(statuses) <= {Status.OK, Status.NO_SPACE, Status.BUSY}
            for name in made:
                peers[0].ok(Type.DELETE, name_of(name))
            rounds += len(made)
        assert rounds, "some are made"


def test_a_queue_does_not_grow_beyond_the_quota(served: Serve) -> None:
    server = served(limits=of_namespace(bytes=2 << 20))
    with shmq.connect(server.url) as remote:
        remote.create_queue("a", **SMALL)
        remote.create_queue("b", **SMALL)
        remote.alter_queue("a", arena_bytes=1 << 20)
        with pytest.raises(
            shmq.NoSpace, match=r"limits.namespace.bytes=2097152: .*its larger size"
        ):
            remote.alter_queue("b", arena_bytes=1 << 20, ttl=9)
        assert remote.queue("b").options.ttl is None
        remote.alter_queue("b", ttl=9)
        remote.alter_queue("a", arena_bytes=1 << 16)
        assert remote.alter_queue("b", arena_bytes=1 << 20).arena_bytes == 1 << 20
