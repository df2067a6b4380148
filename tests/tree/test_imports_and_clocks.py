"""Imports inside functions are safe from forks, and deadlines are read from the kernel's clock."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Processes of their own, by reason: their programs neither fork while threads load modules nor run
#: under tests that freeze the clock.
PROCESSES = {
    "cli": "the command `shmq`",
    "disk/persistence": "the persistence writer",
    "extras/advice": "the command `shmq advise`",
    "extras/console": "the process of `shmq console`",
    "extras/nats/bridge": "the process of `shmq bridge`",
    "extras/nats/cluster": "commands that manage servers of NATS",
    "extras/stress": "the command `shmq stress`",
    "host/diagnose": "the commands `shmq fsck`, `doctor` and `top`",
    "metrics": "pages of metrics, served by those processes",
    "server": "the processes of `shmq serve`",
    "spark": "jobs and data sources, in processes of Spark",
}

#: Modules that may read Python's clock, by reason.
PYTHON_CLOCK = {
    "client/shared/loop_timer.py": "it finds out whether the clock is frozen",
    "extras/celery/envelope.py": "a delay until a time that the caller took from that clock",
    "extras/django/backend.py": "a delay until a time that the caller took from that clock",
    "extras/taskiq/schedule_source.py": "minutes of taskiq's scheduler, which reads it too",
    "host/supervision/audit.py": "the audit log of a server",
    "host/supervision/login_failures.py": "a server's or a console's",
}

#: asyncio's timers, and where they are used in a loop that has the kernel's clock.
TIMERS = ("sleep", "timeout", "timeout_at", "wait_for", "call_later", "call_at")
OWN_LOOP = "extras/nats/client/"

MODULES = {
    str(path.relative_to(ROOT / "shmq")): ast.parse(path.read_text(), str(path))
    for path in sorted((ROOT / "shmq").rglob("*.py"))
    if not PROCESSES.keys() & {str(each) for each in path.relative_to(ROOT / "shmq").parents}
}


def unguarded(node: ast.AST, *, inside: bool = False, waits: bool = False) -> Iterator[str]:
    """The imports inside functions that are in no ``with late_imports:``.

    An ``async def`` may import asyncio, which its caller has loaded.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from unguarded(child, inside=True, waits=isinstance(child, ast.AsyncFunctionDef))
        elif isinstance(child, ast.With) and "late_imports" in map(_text, child.items):
            assert all(
                isinstance(each, ast.Import | ast.ImportFrom | ast.Assign) for each in child.body
            )
        elif isinstance(child, ast.Import | ast.ImportFrom) and inside:
            if not (waits and ast.unparse(child) == "import asyncio"):
                yield f"{child.lineno}: {ast.unparse(child)}"
        else:
            yield from unguarded(child, inside=inside, waits=waits)


def _text(item: ast.withitem) -> str:
    return ast.unparse(item.context_expr)


def clocks(module: ast.Module) -> list[str]:
    """The imports of Python's ``time``."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(module)
        if (isinstance(node, ast.Import) and any(alias.name == "time" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "time")
    ]


@pytest.mark.parametrize("module", MODULES)
def test_an_import_inside_a_function_is_safe_from_forks(module: str) -> None:
    assert list(unguarded(MODULES[module])) == [], "import it in a `with late_imports:` block"


@pytest.mark.parametrize("module", MODULES)
def test_deadlines_are_read_from_the_clock_of_the_kernel(module: str) -> None:
    found = clocks(MODULES[module])
    assert bool(found) == (module in PYTHON_CLOCK), f"{found}: use shmq.native._clock"


def timers(module: ast.Module) -> list[str]:
    """The calls of asyncio's timers, which read the clock of the caller's loop."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TIMERS
        and ast.unparse(node.func.value) in ("asyncio", "loop", "self.loop")
        and ast.unparse(node.args[0]) not in ("0", "None")
    ]


@pytest.mark.parametrize("module", MODULES)
def test_a_wait_in_a_loop_of_the_program_reads_the_clock_of_the_kernel(module: str) -> None:
    if not module.startswith(OWN_LOOP):
        expected = module == "client/shared/loop_timer.py"
        assert bool(timers(MODULES[module])) == expected, "use shmq.client.shared.loop_timer"


def test_what_may_differ_exists() -> None:
    assert PYTHON_CLOCK.keys() <= MODULES.keys()
    assert all((ROOT / "shmq" / name).is_dir() for name in PROCESSES)
