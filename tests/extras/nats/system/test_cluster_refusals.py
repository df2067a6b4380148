"""What a client of a cluster does about a refusal that passes, and about one that does not."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

import shmq
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from tests.support.nats_server import NATS_SERVER

#: Of a server that has lost the lead and proposes a message yet: it has no number.
NOT_LEADER = {"error": {"code": 503, "description": "raft: not leader"}}
NO_LEADER = {"error": {"code": 503, "err_code": 10008, "description": "no quorum"}}
TAKEN = {"stream": "S", "seq": 7}


@pytest.fixture
def url(namespace: str) -> Iterator[str]:
    with NATS_SERVER.serve(namespace) as url:
        yield url


async def published(url: str, answers: Sequence[Any], within: float) -> dict[str, Any]:
    """What a publish returns to which these are the answers, the last one again and again."""
    given = itertools.chain(answers, itertools.repeat(answers[-1]))

    async def answer(message: Msg) -> None:
        await message.respond(json.dumps(next(given)).encode())

    async def check_there() -> None:
        raise AssertionError("the responder is there")

    stream = await nats.connect(url.rpartition("/")[0])
    try:
        await stream.subscribe("orders", cb=answer)
        await stream.flush()
        with contextlib.closing(ClusterConnection(ClusterTarget.of(url))) as connection:
            publish = connection.publish(
                "orders", b"x", {}, what="queue 'q'", check_there=check_there, within=within
            )
            return await connection.arun(publish)
    finally:
        await stream.close()


@pytest.mark.parametrize("refusal", [NOT_LEADER, NO_LEADER])
def test_a_message_is_put_again_while_no_server_leads(url: str, refusal: Any) -> None:
    found = asyncio.run(published(url, [refusal, refusal, TAKEN], 30))
    assert found["seq"] == TAKEN["seq"]


@pytest.mark.parametrize("refusal", [NOT_LEADER, NO_LEADER])
def test_a_cluster_that_has_no_leader_in_time_is_lost(url: str, refusal: Any) -> None:
    with pytest.raises(shmq.ConnectionLost, match="queue 'q': "):
        asyncio.run(published(url, [refusal], 0.5))


def test_another_refusal_is_told_at_once(url: str) -> None:
    refusal = {"error": {"code": 400, "err_code": 10077, "description": "maximum messages"}}
    with pytest.raises(ApiError, match=r"queue 'q': maximum messages \(error 10077\)"):
        asyncio.run(published(url, [refusal], 30))
