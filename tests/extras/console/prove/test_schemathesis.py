"""The whole API against its own OpenAPI page: what it allows and what it forbids, at random.

No request may fail by a fault of the console, and each answer must be one that the page tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import shmq
from shmq.extras.console.api.openapi import document
from shmq.extras.console.api.operation import load_operations
from shmq.native._stream import MAX_PARTITIONS
from tests.support.console import Console, console
from tests.support.namespaces import own_namespace
from tests.support.waiting import PATIENCE

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
]
#: Names that exist, so that a request at random gets further than "there is none".
NAMES = {"queues": "orders", "streams": "clicks", "exchanges": "events", "schemas": "orders"}
EXAMPLES = 30
#: At most so many partitions are added by one request: each takes a descriptor of this process.
PARTITIONS = 10

load_operations()


@schemathesis.serializer("application/x-ndjson")
def _lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Any text as it is; the page says of NDJSON only that it is one."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b"\0"


@pytest.fixture(scope="module")
def site() -> Iterator[Console]:
    """A console whose namespace has one of each; what is deleted is made again by `filled`."""
    with own_namespace(debris=True) as name, console(name) as made:
        made.namespace = name  # type: ignore[attr-defined]
        yield made


def _fill(broker: shmq.Broker) -> None:
    broker.ensure_queue("orders", arena_bytes=1 << 20, max_message_bytes=1 << 16)
    broker.ensure_stream("clicks", partitions=2, ring_bytes=1 << 16).group("billing")
    exchange = broker.ensure_exchange("events", "topic")
    exchange.bind("orders", "#")
    exchange.bind("clicks", "#", kind="stream")


def _name(case: schemathesis.Case[Any]) -> None:
    """Put names of what exists in the place of those that could be, and take out long waits."""
    for wait in ("wait", "timeout"):
        if isinstance((case.query or {}).get(wait), int | float) and 0 < case.query[wait] <= 20:
            case.query[wait] = 0.01
    parts = case.path_parameters or {}
    noun = case.path.split("/")[3]
    for part, name in (("name", NAMES.get(noun)), ("group", "billing")):
        if name is not None and re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", str(parts.get(part, ""))):
            parts[part] = name


def _limit_partitions(case: schemathesis.Case[Any]) -> None:
    """Put a small number of partitions in the place of a large one that is allowed."""
    body = case.body
    wanted = body.get("partitions") if isinstance(body, dict) else None
    if isinstance(body, dict) and isinstance(wanted, int) and PARTITIONS < wanted <= MAX_PARTITIONS:
        case.body = {**body, "partitions": PARTITIONS}


schema = schemathesis.openapi.from_dict(document())
schema.config.generation.update(max_examples=EXAMPLES)


@schema.parametrize()
@hypothesis.settings(max_examples=EXAMPLES)
def test_the_api_keeps_to_its_page(case: schemathesis.Case[Any], site: Console) -> None:
    with shmq.connect(site.namespace) as broker:  # type: ignore[attr-defined]
        _fill(broker)
    _name(case)
    _limit_partitions(case)
    # A change of a schema may wait for the persistence writer, for as long as requests wait for
    # an answer by default.
    answer = case.call(base_url=site.url, headers={"X-Shmq-CSRF": "1"}, timeout=PATIENCE)
    case.validate_response(answer, checks=CHECKS)


def test_the_page_is_a_valid_one() -> None:
    schema.validate()
