"""Every public method is documented, by itself or by the contract that it implements."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import shmq
from shmq import api

ROOT = Path(__file__).resolve().parents[2]

#: A command, or loaded by a framework alone.
NOT_LOADED = {"shmq.extras.django.process"}


def modules(package: ModuleType) -> Iterator[ModuleType]:
    """The package, and all modules within."""
    yield package
    for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if each.name.endswith("__main__") or each.name in NOT_LOADED:
            continue
        try:
            module = importlib.import_module(each.name)
        except ModuleNotFoundError as error:
            assert str(error.name).partition(".")[0] != "shmq", error
            continue  # its extra is not installed
        if each.ispkg:
            yield from modules(module)
        else:
            yield module


def undocumented(kind: type) -> Iterator[str]:
    """The public methods of the class without a docstring of their own or an inherited one."""
    for name, value in vars(kind).items():
        is_method = inspect.isfunction(value) or isinstance(
            value, (property, staticmethod, classmethod)
        )
        if is_method and not name.startswith("_") and not inspect.getdoc(getattr(kind, name)):
            yield f"{kind.__module__}.{kind.__qualname__}.{name}"


def test_every_public_method_is_documented() -> None:
    kinds = [
        kind
        for module in modules(shmq)
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and name[0] != "_"
    ]
    assert len(kinds) > 500
    assert [name for kind in kinds for name in undocumented(kind)] == []


@pytest.mark.parametrize(
    ("module", "kind", "contract"),
    [
        ("client.local.queue", "LocalQueue", api.Queue),
        ("client.local.stream", "LocalStream", api.Stream),
        ("client.local.broker", "LocalBroker", api.Broker),
        ("client.local.table", "LocalTable", api.Table),
        ("client.remote.queue", "RemoteQueue", api.Queue),
        ("client.remote.stream", "RemoteStream", api.Stream),
        ("client.remote.broker", "RemoteBroker", api.Broker),
        ("client.remote.exchange", "RemoteExchange", api.Exchange),
        ("extras.nats.client.queue", "NatsQueue", api.Queue),
        ("extras.nats.client.stream", "NatsStream", api.Stream),
        ("extras.nats.client.broker", "NatsBroker", api.Broker),
    ],
)
def test_help_on_a_handle_explains_the_method_as_the_contract_does(
    module: str, kind: str, contract: type
) -> None:
    handle = getattr(importlib.import_module(f"shmq.{module}"), kind)
    for name, method in inspect.getmembers(contract, inspect.isfunction):
        if name[0] != "_" and hasattr(handle, name):
            assert inspect.getdoc(getattr(handle, name)) == inspect.getdoc(method), name


def test_no_docstring_only_refers_to_another_one() -> None:
    found = [
        str(path.relative_to(ROOT))
        for kind in ("py", "pyx", "pxi", "pyi")
        for path in sorted((ROOT / "shmq").rglob(f"*.{kind}"))
        if re.search(r'"""See (:class:)?`', path.read_text())
    ]
    assert found == []
