"""What a loop in C can do here: the limits beside which everything is measured."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench.row import Contestant, Role
from bench.stage import PATIENCE, Failed

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / "build" / "limits"


def _compiler() -> str | None:
    return shutil.which("cc")


@cache
def program(name: str) -> Path:
    """The loop ``name``.c, compiled for this run."""
    compiler = _compiler()
    assert compiler is not None
    BUILT.mkdir(parents=True, exist_ok=True)
    target = BUILT / name
    source = HERE / f"{name}.c"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([compiler, *flags, str(source), "-o", str(target)], check=True)
    return target


def play(name: str, *arguments: object) -> list[float]:
    """Run a loop; the numbers that it prints. Raises Failed if it found anything wrong."""
    command = [str(program(name)), *(str(argument) for argument in arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if ended.returncode:
        raise Failed(f"{' '.join(command)}: {ended.stderr}")
    return [float(number) for number in ended.stdout.split()]


class Limit(Contestant):
    """A loop in C."""

    role: Role = "limit"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return None if _compiler() else "there is no C compiler called cc"


class RateLimit(Limit):
    """A loop that takes how many messages it passes, and one more number."""

    def __init__(self, label: str, name: str, number: int, here: int, there: int) -> None:
        self.label = label
        self.name = name
        self.number = number
        self.cores = here, there
        self.messages = 64

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        while True:
            rate = self.turn()["rate"]
            if self.messages / rate >= seconds / 4:
                break
            self.messages *= 4
        self.messages = max(1, int(rate * seconds))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        (rate,) = play(self.name, *self.cores, self.messages, self.number)
        return {"rate": rate}
