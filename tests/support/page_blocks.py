"""Runs the non-Python parts of a documentation page: files, commands, expected output.

One shell per page, in the page's own folder, runs the ``console`` blocks. A line that begins
with ``$ `` is a command; the lines up to the next command are its expected standard output. In
them ``…`` stands for any text, and alone on a line for any lines. A command must succeed. The
namespace of ``SHMQ_NAMESPACE`` is shown as ``default-1000``, as a reader would see it.

A block whose first line is ``# NAME.py``, or in C ``// NAME.c``, is saved under that name
instead of being run. In other blocks ``print(…)  # -> TEXT`` must print that text. If a page's
examples use port 9999, a server runs on another port, which replaces it.
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
    """Print the values; raise AssertionError if the output differs from the page."""
    printed = " ".join(map(str, values))
    print(printed)
    assert matches(f"{printed}\n", expected), f"{printed!r} is not {expected!r}"


def type_in(block: str) -> None:
    """Run the commands of a ``console`` block; raise AssertionError if the output differs."""
    for command, expected in _commands(block):
        printed, code = _run(command)
        assert code == 0, f"$ {command}\n{printed}{_STDERR.read_text()}exit code {code}"
        if expected:
            assert matches(printed, expected), f"$ {command}\n{printed}is not\n{expected}"


def matches(printed: str, expected: str) -> bool:
    """Whether a command printed what the page says, apart from the width of columns."""
    lines = (
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in map(_narrow, expected.splitlines())
    )
    narrow = "".join(f"{_narrow(line)}\n" for line in printed.splitlines())
    return re.fullmatch("".join(lines), narrow) is not None


def _narrow(line: str) -> str:
    return " ".join(line.split())


def _commands(block: str) -> list[tuple[str, str]]:
    """Each command with its output on the page."""
    parts = re.split(r"^\$ (.*(?:\n> .*)*)\n", block, flags=re.MULTILINE)
    assert not parts[0], f"a console block begins with a command: {parts[0]!r}"
    typed = (part.replace("\n> ", "\n") for part in parts[1::2])
    return list(zip(typed, parts[2::2], strict=True))


def _run(command: str) -> tuple[str, int]:
    """The command's standard output, and its exit code."""
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
        with _STDERR.open("w") as errors:  # a shell reports killed jobs there
            _shell = subprocess.Popen(
                ["bash", "--norc"], stdin=pipe, stdout=pipe, stderr=errors, text=True
            )
        atexit.register(_close, _shell)
    return _shell


def _close(shell: subprocess.Popen[str]) -> None:
    """End the shell and its background jobs."""
    shell.communicate("kill -9 $(jobs -p) 2>/dev/null; wait 2>/dev/null\n")
