"""The options that calls take by name are typed: a type checker finds one that is misspelt."""

from __future__ import annotations

import datetime as dt
import importlib.util
import inspect
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import shmq
from shmq.api import Stream, keywords
from shmq.api.options import Options, options_of

#: A call with a right option for each with a misspelt one, which the name beside it is of.
PROGRAM = """
import shmq
from shmq.api.keywords import QueueKeywords
from typing import Unpack

def make(broker: shmq.Broker, name: str, **options: Unpack[QueueKeywords]) -> shmq.Queue:
    return broker.create_queue(name, **options)

broker = shmq.connect()
broker.create_queue("q", capacity=5, ttl=None, overflow="block")
broker.ensure_queue("q", visibility_timeout=5)
broker.create_stream("s", 2, ring_bytes=65536)
broker.ensure_stream("s", partitions=2, durability="memory")
broker.subscribe("s", "a.*", history=None, policy="block")
broker.stream("s").producer(linger=0.1)
make(broker, "q", confirm="memory")
queue, exchange = broker.queue("q"), broker.exchange("x")
queue.loan(5, timeout=1, group="g")
exchange.publish(b"x", "key", ttl=1, headers={"a": 1})
exchange.publish_many([b"x"], priority=1)
broker.request("q", b"x", 1, delay=2)

broker.create_queue("q", capactiy=5)
broker.ensure_queue("q", visibility_timout=5)
broker.create_stream("s", 2, ring_byte=65536)
broker.ensure_stream("s", partition=2)
broker.subscribe("s", histroy=1)
broker.stream("s").producer(lingr=0.1)
make(broker, "q", confrim="memory")
broker.create_queue("q", overflow="blocks")
queue.loan(5, gruop="g")
exchange.publish(b"x", "key", tll=1)
exchange.publish_many([b"x"], dedupe_id="one")
broker.request("q", b"x", 1, dealy=2)
"""

MISSPELT = (
    "capactiy", "visibility_timout", "ring_byte", "partition", "histroy", "lingr", "confrim",
    "overflow", "gruop", "tll", "dedupe_id", "dealy",
)  # fmt: skip


def hints(of: object) -> dict[str, Any]:
    found = get_type_hints(of)
    found.pop("return", None)
    return found


def given(options: type[Options]) -> dict[str, Any]:
    """The types of the options as calls take them: a duration may be a timedelta."""
    return {
        name: kind | dt.timedelta if options_of(options)[name].kind == "seconds" else kind
        for name, kind in hints(options).items()
    }


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        (keywords.QueueKeywords, shmq.QueueOptions),
        (keywords.EnsureStreamKeywords, shmq.StreamOptions),
    ],
)
def test_what_can_be_given_is_what_the_options_have(typed: type, options: type[Options]) -> None:
    assert hints(typed) == given(options)


def test_create_stream_takes_the_partitions_in_their_place() -> None:
    assert {**hints(keywords.StreamKeywords), "partitions": int} == given(shmq.StreamOptions)


@pytest.mark.parametrize(
    ("typed", "method", "others"),
    [
        (keywords.PutKeywords, shmq.Queue.put, {"body", "block", "timeout"}),
        (keywords.PutManyKeywords, shmq.Queue.put_many, {"bodies", "block", "timeout"}),
        (
            keywords.PutPackedKeywords,
            shmq.Queue.put_packed,
            {"data", "lengths", "block", "timeout"},
        ),
        (keywords.ProducerKeywords, Stream.producer, set()),
        (keywords.SubscribeKeywords, Stream.subscribe, {"pattern"}),
        (keywords.ReaderKeywords, Stream.reader, {"start", "partitions"}),
        (keywords.IncrementKeywords, shmq.Table.increment, {"key", "by"}),
        (keywords.RecordLoanKeywords, Stream.loan, {"size"}),
    ],
)
def test_what_can_be_given_is_what_the_method_takes(
    typed: type, method: Callable[..., Any], others: set[str]
) -> None:
    taken = set(inspect.signature(method).parameters) - {"self"} - others
    assert set(typed.__annotations__) == taken
    texts = {name: method.__annotations__[name] for name in taken}
    given = {name: str(inspect.get_annotations(typed)[name]) for name in taken}
    assert all(texts[name] in given[name] for name in taken), (texts, given)


def lines_found(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stdout


def check(found: str, path: Path) -> None:
    """Each misspelt call is an error, and no other line."""
    lines = PROGRAM.splitlines()
    wrong = {lines.index(line) + 1 for line in lines if any(f"{w}=" in line for w in MISSPELT)}
    wrong -= {lines.index('broker.create_queue("q", capacity=5, ttl=None, overflow="block")') + 1}
    told = {
        int(line.split(f"{path.name}:")[1].split(":")[0])
        for line in found.splitlines()
        if f"{path.name}:" in line and "error" in line
    }
    assert told == wrong, found


def test_mypy_finds_an_option_that_is_misspelt(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = (
        *(sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent"),
        *("--ignore-missing-imports", f"--cache-dir={tmp_path / 'cache'}", str(path)),
    )
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    check(lines_found(run), path)


def test_pyright_finds_an_option_that_is_misspelt(tmp_path: Path) -> None:
    pyright = shutil.which("basedpyright", path=Path(sys.executable).parent)
    if pyright is None:
        pytest.skip("basedpyright is not installed")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = (pyright, "--level", "error", "--pythonpath", sys.executable, str(path))
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    check(lines_found(run), path)
