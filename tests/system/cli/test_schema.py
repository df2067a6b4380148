"""``shmq schema``."""

from __future__ import annotations

import json

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.support.shell import Shell

FIRST = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
BROKEN = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def packed(schema: object) -> bytes:
    return json.dumps(schema).encode()


def test_a_schema_is_set_shown_and_listed(shell: Shell, queue: shmq.Queue) -> None:
    ran = shell("schema", "set", "-q", "jobs", "-", stdin=packed(FIRST))
    assert ran.text == "version 1 is the schema of 'jobs'\n"
    flags = ("--compatibility", "full", "--json")
    ran = shell("schema", "set", "-q", "jobs", *flags, "-", stdin=packed(FIRST))
    assert ran.json == {"name": "jobs", "version": 2}

    assert shell("schema", "show", "-q", "jobs", "--version", "1").json == FIRST
    listed = shell("schema", "list", "-q", "jobs", "--json").json
    assert [(each["version"], each["compatibility"]) for each in listed] == [
        (1, "backward"),
        (2, "full"),
    ]
    assert "id" in shell("schema", "list", "-q", "jobs").text


@pytest.mark.prove
def test_what_breaks_the_rule_is_found_wrong_with_its_field(
    shell: Shell, queue: shmq.Queue
) -> None:
    shell("schema", "set", "-q", "jobs", "-", stdin=packed(FIRST))

    ran = shell("schema", "check", "-q", "jobs", "-", stdin=packed(BROKEN), code=Code.WRONG)
    assert "'id'" in ran.error and "version 1" in ran.error
    assert shell("schema", "check", "-q", "jobs", "-", stdin=packed(FIRST)).code == 0
    shell("schema", "set", "-q", "jobs", "-", stdin=packed(BROKEN), code=Code.WRONG)
    assert len(shell("schema", "list", "-q", "jobs", "--json").json) == 1


def test_what_is_no_schema_is_refused(shell: Shell, queue: shmq.Queue) -> None:
    ran = shell("schema", "set", "-q", "jobs", "-", stdin=b"{", code=Code.REFUSED)
    assert "is not JSON" in ran.error
    ran = shell("schema", "set", "-q", "jobs", "-", stdin=b"[]", code=Code.REFUSED)
    assert "object" in ran.error
    shell("schema", "show", "-q", "jobs", code=Code.USAGE)
    shell("schema", "show", "-q", "nowhere", code=Code.NO_QUEUE)
