"""What is made from the tables of options is as the tables are."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shmq
from shmq.api.exchange import ExchangeOptions
from shmq.api.group import GroupOptions
from shmq.api.options import Options, Part, options_of
from shmq.api.share import ShareOptions

ROOT = Path(__file__).resolve().parent.parent.parent


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("options", ROOT / "tools/options.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()
TABLES = [shmq.QueueOptions, shmq.StreamOptions, GroupOptions, ShareOptions, ExchangeOptions]


@pytest.mark.parametrize("name", GENERATOR.FILES)
def test_what_is_made_is_current(name: str) -> None:
    text = (ROOT / name).read_text()
    assert GENERATOR.render(text) == text, "a table of options has changed: make options"


def test_every_part_stands_in_one_file() -> None:
    texts = [(ROOT / name).read_text() for name in GENERATOR.FILES]
    found = [part for text in texts for part in GENERATOR.parts_of(text)]
    assert sorted(found) == sorted(GENERATOR.PARTS)


@pytest.mark.parametrize("table", TABLES)
def test_an_option_stands_behind_what_it_follows(table: type[Options]) -> None:
    before: list[str] = []
    for name, row in options_of(table).items():
        parts = [part for part in (row.follows, row.most) if isinstance(part, Part)]
        assert all(part.option in before for part in parts), name
        before.append(name)


@pytest.mark.parametrize(
    ("table", "method", "others"),
    [
        (GroupOptions, shmq.Stream.group, {"name", "create"}),
        (ShareOptions, shmq.Stream.share, {"name", "member", "on_damage"}),
        (ExchangeOptions, shmq.Broker.create_exchange, {"name"}),
        (ExchangeOptions, shmq.Broker.ensure_exchange, {"name", "if_different"}),
    ],
)
def test_a_call_takes_the_options_of_its_table(
    table: type[Options], method: Callable[..., Any], others: set[str]
) -> None:
    parameters = inspect.signature(method).parameters
    taken = {name: parameters[name].default for name in set(parameters) - others - {"self"}}
    table_defaults = {name: getattr(table(), name) for name in options_of(table)}

    assert set(taken) == set(table_defaults)
    for name, default in taken.items():
        assert default in {None, table_defaults[name]}, name
