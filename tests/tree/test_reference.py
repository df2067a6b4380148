"""docs/reference/api.md has every public name, docs/reference/options.md every property."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import shmq
import shmq.mp
from shmq import api, errors
from shmq.api.options import options_of
from shmq.api.properties import PROPERTIES, Call, properties_of
from tools import reference

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/api.md").read_text()
STALE = "docs/reference/api.md is older than the docstrings: run `make reference`"
OPTIONS = (ROOT / "docs/reference/options.md").read_text()
CALLS = get_args(Call)


#: Every public name and what it is, by its title on the page. What a module only hands on
#: from the standard library is described there.
PUBLIC: dict[str, Any] = {
    (name if module is shmq else f"{module.__name__.removeprefix('shmq.')}.{name}"): value
    for module in map(importlib.import_module, reference.MODULES)
    for name, value in ((name, getattr(module, name)) for name in reference.names_of(module))
    if not inspect.ismodule(value) and str(getattr(value, "__module__", "shmq")).startswith("shmq")
    if value is not shmq.mp.ShutDown  # the standard library's from Python 3.13 on
}


def members(kind: type) -> Iterator[str]:
    """The public methods, properties and fields of a class, of hidden bases included."""
    for base in kind.__mro__:
        if base is kind or (base.__module__.startswith("shmq") and base not in PUBLIC.values()):
            yield from (name for name in vars(base) if not name.startswith("_"))


def section(name: str) -> str:
    """What the page has under the heading of a public name."""
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"{STALE} (it has no section on {name})"
    return found[1]


def table_of(heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading of docs/reference/options.md, by cell."""
    text = OPTIONS.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|$", text, re.MULTILINE)
    cells = [row.split(" | ") for row in rows]
    return {name: row[1:] for row in cells for name in re.findall(r"`(\w+)`", row[0])}


def test_the_page_is_what_the_docstrings_make() -> None:
    assert reference.render() == PAGE, STALE


def test_every_public_name_has_a_section_and_no_other() -> None:
    assert set(re.findall(r"^## ([\w.]+)$", PAGE, re.MULTILINE)) == set(PUBLIC), STALE


#: Names of the contract for types alone.
ALIASES = {
    "Assignment",
    "Body",
    "Compression",
    "ExchangeKind",
    "GroupStart",
    "Match",
    "OnPartitions",
    "OnDamage",
    "Policy",
    "Row",
    "Start",
    "Acks",
    "Partitioner",
    "TargetKind",
}


def test_every_class_of_the_contract_is_public() -> None:
    assert set(api.__all__) - ALIASES <= set(dir(shmq))


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(PUBLIC[name])])
def test_every_member_of_a_public_class_is_described_and_no_other(name: str) -> None:
    text = section(name)
    headings = set(re.findall(rf"^### {re.escape(name)}\.(\w+)$", text, re.MULTILINE))
    fields = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))

    assert headings | fields == set(members(PUBLIC[name])), STALE
    assert not headings & fields


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(PUBLIC[name])])
def test_every_field_says_what_it_is(name: str) -> None:
    for row in re.findall(r"^\| `\w+` \|.*$", section(name), re.MULTILINE):
        assert len(row.split(" | ")[-1]) > len("x. |"), row


def test_every_argument_of_a_method_stands_in_its_signature() -> None:
    for name in ("Queue", "Message", "Broker"):
        for member, value in vars(PUBLIC[name]).items():
            if member.startswith("_") or isinstance(value, property):
                continue
            text = section(name).partition(f"### {name}.{member}\n")[2].partition("\n```\n")[0]
            for argument in list(inspect.signature(value).parameters)[1:]:
                said = re.search(rf"\b{argument}\b: ", text)
                assert said, f"{STALE} ({name}.{member}({argument}))"


@pytest.mark.parametrize(
    "option",
    [
        name
        for name, row in options_of(shmq.QueueOptions).items()
        if row.kind in {"count", "seconds"}
    ],
)
def test_the_range_of_an_option_is_what_is_refused_beyond_it(option: str) -> None:
    said = table_of("Options of a queue")[option][1].replace(",", "").replace("10⁹", "1e9")
    least, most = (float(end) for end in re.findall(r"[\d.]+(?:e\d)?", said)[:2])
    kind = int if options_of(shmq.QueueOptions)[option].kind == "count" else float

    for allowed in (least, most):
        shmq.QueueOptions.for_queue("jobs", {option: kind(allowed)})
    for refused in (kind(least) - (1 if kind is int else 0.0005), kind(most) + 1):
        with pytest.raises(shmq.InvalidOption):
            shmq.QueueOptions.for_queue("jobs", {option: refused})


@pytest.mark.parametrize("call", CALLS)
def test_the_properties_of_a_call_are_those_of_the_table(call: Any) -> None:
    method = api.Transaction.put if call == "transaction" else getattr(shmq.Queue, call)
    parameters = inspect.signature(method).parameters.values()
    taken = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    rows = properties_of(call)

    assert [(each.name, each.annotation) for each in taken] == [
        (row.name, f"{row.type} | None") for row in rows
    ]
    assert all(each.default is None for each in taken)


def test_every_property_has_a_row_that_names_the_calls_that_take_it() -> None:
    named = {
        name: tuple(call for call, said in zip(CALLS, row, strict=False) if said == "yes")
        for name, row in table_of("Properties of a message").items()
    }
    assert named == {name: row.calls for name, row in PROPERTIES.items()}


def test_every_error_has_a_row_with_its_bases_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?)\|(.*?)\|(.*)\|$", OPTIONS.split("## Errors\n")[1], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row[0] + row[2])}

    assert set(errors.__all__) == named
    for kinds, also, _ in rows:
        for name in re.findall(r"`(\w+)`", kinds):
            bases = [base.__name__ for base in getattr(errors, name).__bases__]
            assert set(re.findall(r"`(?:queue\.)?(\w+)`", also)) == {*bases} - {
                "ShmqError",
                "Exception",
            }
