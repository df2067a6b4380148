"""Type checkers know the bodies of typed queues and streams."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import msgspec
import shmq

class Order(msgspec.Struct):
    id: int

broker = shmq.connect("typed")
orders = broker.typed("orders", Order)
reveal_type(orders)
reveal_type(orders.body(orders.queue.get()))
clicks = broker.typed(broker.stream("clicks"), Order)
reveal_type(clicks)
reveal_type(broker.typed("orders"))
reveal_type(broker.typed("orders", {"type": "object"}))
orders.put(Order(1))
orders.put("wrong")
"""

#: What each line reveals, from the eleventh.
REVEALED = [
    "TypedQueue[Order]",
    "Order",
    "TypedStream[Order]",
    "TypedQueue[Any]",
    "TypedQueue[Any]",
]


def revealed(text: str) -> list[str]:
    """The types, without modules."""
    found = re.findall(r"(?:Revealed type is|Type of .* is) \"(.*)\"", text)
    return [re.sub(r"\b[\w.]+\.(\w+)", r"\1", each) for each in found]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(*command: str | Path, folder: Path) -> str:
    ran = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": str(Path(sys.executable).parent), "MYPYPATH": str(ROOT), "HOME": str(folder)},
    )  # fmt: skip
    return ran.stdout


def test_mypy_knows_the_bodies(program: Path) -> None:
    told = run(sys.executable, "-m", "mypy", "--strict", program, folder=program.parent)
    assert revealed(told) == REVEALED, told
    (wrong,) = re.findall(r"program.py:(\d+): error", told)
    assert PROGRAM.splitlines()[int(wrong) - 1] == 'orders.put("wrong")'


@pytest.mark.skipif(
    shutil.which("basedpyright", path=Path(sys.executable).parent) is None,
    reason="basedpyright is not installed",
)
def test_pyright_knows_the_bodies(program: Path) -> None:
    (program.parent / "pyrightconfig.json").write_text(
        f'{{"extraPaths": ["{ROOT}"], "typeCheckingMode": "standard"}}'
    )
    python = Path(sys.executable)
    told = run(
        python.with_name("basedpyright"), "--pythonpath", python, program, folder=program.parent
    )
    assert revealed(told) == REVEALED, told
    (wrong,) = re.findall(r"program.py:(\d+):\d+ - error", told)
    assert PROGRAM.splitlines()[int(wrong) - 1] == 'orders.put("wrong")'
