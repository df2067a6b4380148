"""``shmq schema``."""

from __future__ import annotations

import json
import re

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.system.cli.conftest import Quick

FIRST = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
BROKEN = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def packed(schema: object) -> bytes:
    return json.dumps(schema).encode()


def test_a_schema_is_set_shown_and_listed(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("schema", "set", "-q", "jobs", "-", stdin=packed(FIRST))
    assert ran.text == "version 1 is the schema of 'jobs'\n"
    flags = ("--compatibility", "full", "--json")
    ran = quick("schema", "set", "-q", "jobs", *flags, "-", stdin=packed(FIRST))
    assert ran.json == {"name": "jobs", "version": 2}

    assert quick("schema", "show", "-q", "jobs", "--version", "1").json == FIRST
    listed = quick("schema", "list", "-q", "jobs", "--json").json
    assert [(each["version"], each["compatibility"]) for each in listed] == [
        (1, "backward"),
        (2, "full"),
    ]
    assert "id" in quick("schema", "list", "-q", "jobs").text


def test_what_breaks_the_rule_is_found_wrong_with_its_field(
    quick: Quick, queue: shmq.Queue
) -> None:
    quick("schema", "set", "-q", "jobs", "-", stdin=packed(FIRST))

    ran = quick("schema", "check", "-q", "jobs", "-", stdin=packed(BROKEN), code=Code.WRONG)
    assert "'id'" in ran.error and "version 1" in ran.error
    assert quick("schema", "check", "-q", "jobs", "-", stdin=packed(FIRST)).code == 0
    quick("schema", "set", "-q", "jobs", "-", stdin=packed(BROKEN), code=Code.WRONG)
    assert len(quick("schema", "list", "-q", "jobs", "--json").json) == 1


def test_what_is_no_schema_is_refused(quick: Quick, queue: shmq.Queue) -> None:
    ran = quick("schema", "set", "-q", "jobs", "-", stdin=b"{", code=Code.REFUSED)
    assert "is not JSON" in ran.error
    ran = quick("schema", "set", "-q", "jobs", "-", stdin=b"[]", code=Code.REFUSED)
    assert "object" in ran.error
    quick("schema", "show", "-q", "jobs", code=Code.USAGE)
    quick("schema", "show", "-q", "nowhere", code=Code.NO_QUEUE)


def test_all_queues_and_streams_are_exported_as_asyncapi(
    quick: Quick, queue: shmq.Queue, broker: shmq.Broker
) -> None:
    broker.create_stream("clicks", partitions=1)
    broker.create_queue(shmq.escape_name("a b"), dead_letter=None)
    quick("schema", "set", "-q", "jobs", "-", stdin=packed(FIRST))

    made = quick("schema", "export", "--asyncapi").json

    assert made["asyncapi"] == "3.0.0"
    assert made["info"]["title"] == broker.namespace
    assert made["channels"]["queue_jobs"]["address"] == "jobs"
    reference = made["channels"]["queue_jobs"]["messages"]["body"]["$ref"]
    assert reference == "#/components/messages/queue_jobs"
    assert made["components"]["messages"]["queue_jobs"]["payload"]["schema"] == FIRST
    assert "payload" not in made["components"]["messages"]["stream_clicks"]
    assert made["operations"]["receive_stream_clicks"]["action"] == "receive"
    # Keys are what the specification allows: section "Components Object".
    keys = [*made["channels"], *made["operations"], *made["components"]["messages"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9.\-_]+", key) for key in keys)
    assert len(made["channels"]) == len(broker.queue_names()) + 1
