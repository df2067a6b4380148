"""Connections that stay open: their limit, and what ends them."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

import shmq
from shmq.extras.console.access import Access, Caller, Sessions
from shmq.extras.console.context import Console
from shmq.extras.console.leases import LeaseBook
from shmq.extras.console.live import End, LiveConnections
from shmq.extras.console.observer import History, ObserverThread
from shmq.extras.console.problem import Problem
from shmq.extras.console.settings import ConsoleSettings
from shmq.server.config.tokens import Token, hash_of

TOKEN = Token(name="t", hash=hash_of("t" * 40), consume=["*"])


@pytest.fixture
def console(broker: shmq.Broker) -> Console:
    return Console(
        settings=ConsoleSettings(),
        broker=broker,
        access=Access([TOKEN]),
        sessions=Sessions(),
        observer=ObserverThread(broker, History()),
        leases=LeaseBook(broker),
    )


def ended_by(console: Console, caller: Caller, *, withdraw: bool = False) -> End:
    """Why a connection of the caller is ended once the token is withdrawn, or the console ends."""

    async def live() -> End:
        why: asyncio.Future[End] = asyncio.get_running_loop().create_future()

        def end(reason: End) -> None:
            if not why.done():
                why.set_result(reason)

        with LiveConnections(console, 1, "things").enter(caller, end):
            if withdraw:
                console.access.replace([dataclasses.replace(TOKEN, consume=[])])
            else:
                console.ending.set()
            return await asyncio.wait_for(why, 30)

    return asyncio.run(live())


def test_a_connection_ends_when_its_token_is_withdrawn(console: Console) -> None:
    assert ended_by(console, Caller(TOKEN), withdraw=True) == "unauthorized"


def test_a_connection_ends_when_its_login_is_over(console: Console) -> None:
    session = console.sessions.begin(TOKEN)
    caller = Caller(TOKEN, session=session.id)
    console.sessions.end(session.id)

    async def live() -> End:
        why: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        with LiveConnections(console, 1, "things").enter(caller, why.set_result):
            return await asyncio.wait_for(why, 30)

    assert asyncio.run(live()) == "unauthorized"


def test_connections_end_with_the_console_and_none_is_let_in_then(console: Console) -> None:
    assert ended_by(console, Caller(None)) == "ending"
    with pytest.raises(Problem, match="ending"):
        ended_by(console, Caller(None))


def test_one_above_the_limit_is_refused_until_another_closes(console: Console) -> None:
    async def live() -> None:
        connections = LiveConnections(console, 1, "things")
        with connections.enter(Caller(None), lambda _: None):
            with (
                pytest.raises(Problem, match="1 things are open") as refusal,
                connections.enter(Caller(None), lambda _: None),
            ):
                pass
            assert (refusal.value.status, refusal.value.code) == (503, "too-many")
        with connections.enter(Caller(None), lambda _: None):
            assert len(connections) == 1

    asyncio.run(live())
