"""The examples in the documents run, in the order in which they stand."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmq.protocol.opcodes import DEFAULT_PORT
from tests.support import page_blocks
from tests.support.celery_worker import entry_points
from tests.support.ended_processes import kill_groups
from tests.support.namespaces import own_namespace
from tests.support.server import serve
from tools.site.pages import anchors

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|console|c)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = re.compile(rf"(?<!\d){DEFAULT_PORT}(?!\d)")
SAVED = re.compile(r"(?:#|//) ([\w-]+\.\w+)\n")
SHOWN = re.compile(r"^( *)print\((.*)\)  # -> (.*)$", re.MULTILINE)
#: An example in Python that takes Spark.
SPARK = re.compile(r"\bspark\b")
WITHOUT_SPARK = importlib.util.find_spec("pyspark") is None
#: What Java and Spark write to stderr when all is well.
JAVA_SAYS = re.compile(
    r"WARNING: .*|Using Spark's default log4j profile: .*|Setting default log level to .*|"
    r"To adjust logging level .*|\d\d/\d\d/\d\d [\d:]+ WARN .*"
)
#: How long the examples of a page may take, in seconds; Spark takes ten to begin.
LIMIT = 240


def examples(page: Path) -> str:
    """The examples of a page as one program, each on the line where it stands there."""
    text = page.read_text()
    program, helpers = "", ""
    for block in BLOCK.finditer(text):
        if WITHOUT_SPARK and block[1] == "python" and SPARK.search(block[2]):
            continue
        program += "\n" * (text.count("\n", 0, block.start(2)) - program.count("\n"))
        step = _step(block[1], block[2])
        helpers = helpers or "from tests.support import page_blocks as _page; " * (step != block[2])
        program += step
    return helpers + program


def _step(kind: str, text: str) -> str:
    first = '__name__ == "__main__" and '  # a process that is spawned imports the program
    if kind == "console":
        return f"{first}_page.type_in({text!r})\n"
    if saved := SAVED.match(text):
        return f"{first}_page.save({saved[1]!r}, {text!r})\n"
    if kind == "c":
        return ""
    return SHOWN.sub(lambda line: f"{line[1]}_page.shows({line[3]!r}, {line[2]})", text)


def _commands(folder: Path) -> Path:
    """A folder with the commands of an environment where shmq is installed."""
    folder.mkdir()
    modules = {name: f"-m {name}" for name in ("shmq", "celery", "dramatiq", "taskiq")}
    modules["huey_consumer"] = "-m huey.bin.huey_consumer"
    for name, arguments in {"python": "", **modules}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        path.chmod(0o700)
    return folder


@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    program = examples(page)
    with (
        own_namespace(inhabited=SPARK.search(program) is not None) as namespace,
        served(program, namespace) as adapted,
    ):
        run_examples(adapted, namespace, tmp_path)


@contextlib.contextmanager
def served(program: str, namespace: str) -> Iterator[str]:
    """The program, and a server on the port that it speaks of: another one, in fact."""
    if not PORT.search(program):
        yield program
        return
    with serve(namespace) as server:
        yield PORT.sub(str(server.port), program)


def run_examples(program: str, namespace: str, tmp_path: Path) -> None:
    script = tmp_path / "examples.py"
    script.write_text(program)

    out, errors = tmp_path / "stdout", tmp_path / "stderr"
    with out.open("w") as stdout, errors.open("w") as stderr:  # no pipe that others may hold
        run = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{_commands(tmp_path / 'bin')}:{os.environ['PATH']}",
                "PYTHONPATH": f"{entry_points()}{os.pathsep}{ROOT}",
                "SHMQ_NAMESPACE": namespace,
                "XDG_CONFIG_HOME": str(tmp_path / "config"),
            },
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        run.wait(LIMIT)
    finally:
        kill_groups([run])  # what a page that failed left running

    assert run.returncode == 0, out.read_text() + errors.read_text()
    said = errors.read_text().splitlines()
    java = SPARK.search(program) is not None
    assert [line for line in said if not (java and JAVA_SAYS.fullmatch(line))] == []


def test_the_pages_have_examples() -> None:
    assert "orders.get()" in examples(ROOT / "README.md")
    assert "kill -9" in examples(ROOT / "docs/start/tutorial.md")


#: Overviews, and pages that explain.
WITHOUT_EXAMPLES = {"README.md", "console.md", "durability.md", "scale.md"}
HOW_TOS = [
    page
    for folder in ("use", "operate", "integrate")
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    if page.name not in WITHOUT_EXAMPLES
]


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.name)
def test_every_how_to_has_an_example(page: Path) -> None:
    assert examples(page)


def test_the_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_links_to_a_heading_lead_to_one() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
            there = page.parent / target if target else page
            assert anchor in anchors(there.read_text()), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("one\ntwo\n", "one\ntwo\n"),
        ("pid 17, idle\n", "pid …, idle\n"),
        ("a\nb\nc\n", "a\n…\nc\n"),
        ("a\nc\n", "a\n…\nc\n"),
    ],
)
def test_what_a_command_prints_is_compared_with_the_page(printed: str, expected: str) -> None:
    assert page_blocks.matches(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [("one\n", "two\n"), ("a\nb\n", "a\n"), ("pid 17\n", "pid …, idle\n"), ("b\n", "a\n…\n")],
)
def test_what_a_page_does_not_say_is_reported(printed: str, expected: str) -> None:
    assert not page_blocks.matches(printed, expected)
