"""The page of the HTTP API has the operations that the code has."""

from __future__ import annotations

from tools import http_api


def test_the_table_of_operations_is_as_the_code_has_it() -> None:
    assert http_api.PAGE.read_text() == http_api.page(), "make reference writes it"
