"""The OpenAPI page: that it is sound, and that it is the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from shmq.extras.console.api.openapi import document
from shmq.extras.console.api.operation import OPERATIONS, load_operations
from tests.support.console import Console
from tests.support.processes import ROOT

load_operations()


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return document()


def operations(page: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in page["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def parts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for part in node.values():
            yield from parts(part)
    elif isinstance(node, list):
        for part in node:
            yield from parts(part)


def test_the_console_gives_the_page(site: Console, page: dict[str, Any]) -> None:
    given = site.api("GET", "/openapi.json")
    assert given.headers["content-type"] == "application/json"
    assert given.json["openapi"] == "3.1.0"
    assert {*given.json["paths"]} == {*page["paths"]}


def test_every_operation_is_on_the_page_once(page: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(page)]
    assert sorted(names) == sorted(row.name for row in OPERATIONS)
    assert len(names) == len(set(names))


def test_every_operation_says_what_it_does(page: dict[str, Any]) -> None:
    for path, method, operation in operations(page):
        assert operation["summary"].endswith("."), f"{method} {path}"
        assert operation["tags"] != [""], f"{method} {path}"


def test_the_parts_of_a_path_are_its_parameters(page: dict[str, Any]) -> None:
    for path, method, operation in operations(page):
        named = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        assert named == re.findall(r"\{(\w+)\}", path), f"{method} {path}"
        every = [(one["in"], one["name"]) for one in operation["parameters"]]
        assert len(every) == len(set(every)), f"{method} {path}"


def test_every_reference_of_the_page_leads_to_a_schema(page: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in page["components"]["schemas"]}
    found = {part["$ref"] for part in parts(page) if isinstance(part.get("$ref"), str)}
    assert found <= known


def test_every_schema_of_the_page_is_a_json_schema(page: dict[str, Any]) -> None:
    schemas = [*page["components"]["schemas"].values()]
    schemas += [one["schema"] for _, _, row in operations(page) for one in row["parameters"]]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_operation_tells_its_answer_and_its_refusals(page: dict[str, Any]) -> None:
    for path, method, operation in operations(page):
        answers = operation["responses"]
        assert any(status.startswith("2") for status in answers), f"{method} {path}"
        for status, answer in answers.items():
            if status.startswith("2"):
                assert status == "204" or answer["content"], f"{method} {path}"
            else:
                assert [*answer["content"]] == ["application/problem+json"]


def test_a_path_that_is_not_on_the_page_does_not_exist(site: Console) -> None:
    told = site.api("GET", "/streamz")
    assert (told.status, told.code) == (404, "unknown-path")
    told = site.api("PATCH", "/streams")
    assert (told.status, told.headers["allow"]) == (405, "GET")


def test_the_document_of_the_api_has_a_line_for_every_operation() -> None:
    text = (ROOT / "docs/reference/http-api.md").read_text()
    missing = [f"{row.method} {row.path}" for row in OPERATIONS]
    assert [one for one in missing if f"| `{one}` |" not in text] == []
