"""Each private name of nats-py that is used: it exists, and is used there as it is here."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import nats.aio.client
import pytest
from nats.aio.subscription import Subscription
from nats.aio.transport import Transport
from nats.protocol import parser

from shmq.extras.nats.client import nats_private
from shmq.extras.nats.client.nats_private import PrivateClient

BASE = nats.aio.client.Client
FOLDER = Path(nats_private.__file__).parents[1]

METHODS = {
    "_process_msg": "async self sid subject reply data headers",
    "_process_headers": "async self headers",
    "_parse_header_lines": "raw",
    "_remove_sub": "self sid max_msgs",
    "_connect_to_server": "async self s",
    "_process_pong": "async self",
}
#: The first value of each attribute, and a piece of nats-py's source that uses it as is done here.
ATTRIBUTES: dict[str, tuple[Any, str]] = {
    "_server_info": ({}, "self._server_info = srv_info"),
    "_status": (0, "self._status = Client.CONNECTED"),
    "_error_cb": (None, "await self._error_cb("),
    "_transport": (None, "self._transport.writelines(self._pending[:])"),
    "_pending": ([], "self._pending.append(cmd)"),
    "_pending_data_size": (0, "self._pending_data_size += len(cmd)"),
    "_flush_queue": (None, "self._flush_queue.put(future)"),
    "_pongs": ([], "self._pongs.pop(0)"),
}
SOURCE = "".join(inspect.getsource(one) for one in (BASE, Subscription, parser))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_its_parameters(name: str) -> None:
    for owner in (BASE, PrivateClient):
        method: Any = getattr(owner, name)
        words = ["async"] * inspect.iscoroutinefunction(method)
        assert [*words, *inspect.signature(method).parameters] == METHODS[name].split()
    assert re.search(rf"\.{name}\(", SOURCE), "nats-py calls it no more"


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_used_as_here(name: str) -> None:
    first, usage = ATTRIBUTES[name]
    assert name in vars(BASE())
    assert first is None or getattr(BASE(), name) == first
    assert usage in SOURCE


def test_a_transport_writes_bytes_at_once() -> None:
    assert list(inspect.signature(Transport.write).parameters) == ["self", "payload"]
    assert not inspect.iscoroutinefunction(Transport.write)


def test_a_subscription_has_its_number() -> None:
    async def run() -> int:
        number: int = Subscription(BASE(), id=7, subject="a")._id
        return number

    assert asyncio.run(run()) == 7


def test_the_page_lists_the_names_and_no_other_module_uses_one() -> None:
    listed = set(re.findall(r"``(?:Subscription\.)?(_\w+)``", nats_private.__doc__ or ""))
    assert listed == {*METHODS, *ATTRIBUTES, "_id"}
    for path in FOLDER.rglob("*.py"):
        used = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and re.match("_[a-z]", node.attr)
            and node.value.id in {"client", "subscription", "consumer", "jetstream"}
        }
        assert not used or path == Path(nats_private.__file__), path
