"""What a loop in C can do here: the limits beside which everything is measured."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.compiled import compiled, no_compiler
from bench.row import SECONDS, Contestant, Role, Turn
from bench.stage import PATIENCE, Failed

HERE = Path(__file__).resolve().parent


def play(name: str, *arguments: object) -> list[float]:
    """Run a loop; the numbers that it prints. Raises Failed if it found anything wrong."""
    command = [str(compiled(HERE / f"{name}.c")), *(str(argument) for argument in arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if ended.returncode:
        raise Failed(f"{' '.join(command)}: {ended.stderr}")
    return [float(number) for number in ended.stdout.split()]


class Limit(Contestant):
    """A loop in C."""

    role: Role = "limit"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return no_compiler()


class RateLimit(Limit):
    """A loop that takes how many messages it passes, and one more number."""

    least, most = 4, 1 << 30

    def __init__(self, label: str, name: str, number: int, here: int, there: int) -> None:
        self.label = label
        self.name = name
        self.number = number
        self.cores = here, there

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""

        def turn(messages: int) -> dict[str, float]:
            (rate,) = play(self.name, *self.cores, messages, self.number)
            return {"rate": rate, SECONDS: messages / rate}

        yield turn
