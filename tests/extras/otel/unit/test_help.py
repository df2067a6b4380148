"""help() on a traced handle explains its methods as the contract does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from shmq import api
from shmq.extras.otel.proxy import proxy_of
from shmq.extras.otel.table import TABLE


@pytest.mark.parametrize("name", TABLE)
def test_a_traced_method_has_the_docstring_and_the_signature_of_the_contract(name: str) -> None:
    contract: Any = Iterator if name == "Iterator" else getattr(api, name)
    proxy = proxy_of(name)
    assert issubclass(proxy, contract)
    for method, promised in inspect.getmembers(contract, inspect.isfunction):
        if method[0] != "_" and hasattr(proxy, method):
            assert inspect.getdoc(getattr(proxy, method)) == inspect.getdoc(promised), method
    for method in TABLE[name]:
        if method[0] != "_":
            traced, promised = getattr(proxy, method), getattr(contract, method)
            assert inspect.signature(traced) == inspect.signature(promised), method


@pytest.mark.parametrize("name", TABLE)
def test_the_arguments_that_a_row_names_are_in_the_signature(name: str) -> None:
    contract: Any = Iterator if name == "Iterator" else getattr(api, name)
    for method, row in TABLE[name].items():
        names = list(inspect.signature(getattr(contract, method)).parameters)[1:]
        for index in (getattr(row, "target", None), getattr(row, "bodies", None)):
            assert index is None or index < len(names), (method, index)
