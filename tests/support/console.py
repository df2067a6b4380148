"""What a page of the documents does beside its Python: files, commands, what it prints.

A ``console`` block is run by one shell a page, in the page's own folder. A line that begins
with ``$ `` is a command; what follows up to the next one is what it must print to standard
output. There ``…`` stands for any text, and alone on its line for any lines. A command must
succeed. The namespace of ``SHMQ_NAMESPACE`` reads ``default-1000``, as it does for a reader.

A block whose first line is ``# NAME.py``, or in C ``// NAME.c``, is saved under that name
instead of being run. Elsewhere ``print(…)  # -> TEXT`` must print that text. Where a page's
examples speak of port 9999, a server is there (on another port, which is put in its place).
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
from pathlib import Path

_MARK = "-- done: "
_STDERR = Path("console.stderr")

_shell: subprocess.Popen[str] | None = None


def save(name: str, text: str) -> None:
    """Save a file of the page."""
    Path(name).write_text(text)


def shows(expected: str, *values: object) -> None:
    """Print the values; AssertionError if that is not what the page says."""
    printed = " ".join(map(str, values))
    print(printed)
    assert matches(f"{printed}\n", expected), f"{printed!r} is not {expected!r}"


def type_in(block: str) -> None:
    """Run the commands of a ``console`` block; AssertionError if they print something else."""
    for command, expected in _commands(block):
        printed, code = _run(command)
        assert code == 0, f"$ {command}\n{printed}{_STDERR.read_text()}exit code {code}"
        if expected:
            assert matches(printed, expected), f"$ {command}\n{printed}is not\n{expected}"


def matches(printed: str, expected: str) -> bool:
    """Whether a command printed what the page says, but for the width of its columns."""
    lines = (
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in map(_narrow, expected.splitlines())
    )
    narrow = "".join(f"{_narrow(line)}\n" for line in printed.splitlines())
    return re.fullmatch("".join(lines), narrow) is not None


def _narrow(line: str) -> str:
    return " ".join(line.split())


def _commands(block: str) -> list[tuple[str, str]]:
    """Each command with what the page says that it prints."""
    parts = re.split(r"^\$ (.*(?:\n> .*)*)\n", block, flags=re.MULTILINE)
    assert not parts[0], f"a console block begins with a command: {parts[0]!r}"
    typed = (part.replace("\n> ", "\n") for part in parts[1::2])
    return list(zip(typed, parts[2::2], strict=True))


def _run(command: str) -> tuple[str, int]:
    """What the command wrote to standard output, and its exit code."""
    shell = _open()
    assert shell.stdin is not None and shell.stdout is not None
    shell.stdin.write(f"{command}\necho; echo '{_MARK}'$?\n")
    shell.stdin.flush()
    printed = ""
    for line in shell.stdout:
        if line.startswith(_MARK):
            printed = printed.removesuffix("\n").replace(
                os.environ["SHMQ_NAMESPACE"], "default-1000"
            )
            return printed, int(line.removeprefix(_MARK))
        printed += line
    raise AssertionError(f"$ {command}\n{printed}the shell ended")


def _open() -> subprocess.Popen[str]:
    global _shell  # noqa: PLW0603 - one shell a page, and this runs once a page
    if _shell is None:
        pipe = subprocess.PIPE
        with _STDERR.open("w") as errors:  # a shell tells there of a job that was killed
            _shell = subprocess.Popen(
                ["bash", "--norc"], stdin=pipe, stdout=pipe, stderr=errors, text=True
            )
        atexit.register(_close, _shell)
    return _shell


def _close(shell: subprocess.Popen[str]) -> None:
    """End the shell and what it left in the background."""
    shell.communicate("kill -9 $(jobs -p) 2>/dev/null; wait 2>/dev/null\n")
