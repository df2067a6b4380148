"""What opcodes.toml says about requests whose connection is lost before their answer."""

from __future__ import annotations

from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.client.remote.connection import Connection
from shmq.protocol.opcodes import AGAIN, Type
from tests.support.proxy import Proxy, of_type

#: Those that a client may send again, and those that it may not. HELLO opens each connection.
ALWAYS = [kind for kind, again in AGAIN.items() if again and kind != Type.HELLO]
NEVER = [kind for kind, again in AGAIN.items() if again is False]
DEPENDS = [kind for kind, again in AGAIN.items() if again is None]


def connection_of(broker: Any) -> Connection:
    connection: Connection = broker._connection
    return connection


@pytest.mark.parametrize("kind", ALWAYS, ids=lambda kind: kind.name)
def test_it_is_sent_again_over_the_next_connection(proxy: Proxy, afar: Broker, kind: Type) -> None:
    connections = proxy.connections
    proxy.cut_before(of_type(kind))

    answer = connection_of(afar).ask(kind, b"")

    assert not answer.lost
    assert proxy.connections == connections + 1
    assert proxy.requests[-1] == kind


@pytest.mark.parametrize("kind", NEVER, ids=lambda kind: kind.name)
def test_its_outcome_is_unknown(proxy: Proxy, afar: Broker, kind: Type) -> None:
    proxy.cut_before(of_type(kind))

    with pytest.raises(shmq.ConnectionLost, match="unknown"):
        connection_of(afar).ask(kind, b"")

    assert kind not in proxy.requests


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", DEPENDS, ids=lambda kind: kind.name)
def test_its_caller_says_whether_it_is_sent_again(
    proxy: Proxy, afar: Broker, kind: Type, again: bool
) -> None:
    proxy.cut_before(of_type(kind))

    if again:
        assert not connection_of(afar).ask(kind, b"", again=True).lost
    else:
        with pytest.raises(shmq.ConnectionLost, match="unknown"):
            connection_of(afar).ask(kind, b"", again=False)

    assert proxy.requests.count(kind) == again
