"""Answers as text: what a person types, the file ``workload.toml``, the defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from shmq.errors import InvalidOption
from shmq.extras.advice.question import QUESTIONS
from shmq.extras.advice.workload import ANSWERS, Workload, check_answers
from shmq.units import seconds_of, size_of

#: No file of answers is longer, in bytes.
_LONGEST_FILE: Final = 1 << 16


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("it is not a number such as 50 or 0.5") from None


def _parse_size(text: str) -> int:
    found = size_of(text)
    if found is None:
        raise ValueError("it is not a size such as 4096, 64KiB or 16MiB")
    return found


def _parse_seconds(text: str) -> float:
    found = seconds_of(text)
    if found is None:
        raise ValueError("it is not a time such as 30, 500ms, 5m or 2h")
    return found


_READ: Final[dict[str, Callable[[str], Any]]] = {
    "bytes": _parse_size,
    "seconds": _parse_seconds,
    "rate": _number,
    "share": _number,
    "count": _number,
}


def read_text(name: str, text: str) -> Any:
    """The answer that a person typed. Raises :class:`~shmq.InvalidOption` if it cannot be it."""
    row, text = ANSWERS[name], text.strip()
    if row.none and text.lower() in {"none", row.none}:
        return None
    if row.kind == "flag":
        return row.check(name, {"yes": True, "no": False}.get(text.lower(), text))
    if row.kind == "words":
        words = [word for word in text.lower().replace(",", " ").split() if word != "none"]
        return row.check(name, words)
    if row.kind == "choice":
        return row.check(name, text.lower())
    try:
        return row.check(name, _READ[row.kind](text))
    except ValueError as error:
        if isinstance(error, InvalidOption):
            raise
        raise InvalidOption(f"{name}={text[:40]!r}: {error}") from None


def read_workload(path: Path) -> dict[str, Any]:
    """The answers of a file in TOML: those of :data:`ANSWERS`, numbers or text as one types it.

    Raises :class:`~shmq.InvalidOption`, which names the file, for one that is not TOML or has
    a wrong answer, and OSError.
    """
    with path.open("rb") as file:
        raw = file.read(_LONGEST_FILE + 1)
    if len(raw) > _LONGEST_FILE:
        raise InvalidOption(f"{path} is longer than {_LONGEST_FILE} bytes: it is not a workload")
    try:
        given = tomllib.loads(raw.decode())
        return check_answers(
            {
                name: read_text(name, value)
                if isinstance(value, str) and name in ANSWERS
                else value
                for name, value in given.items()
            }
        )
    except InvalidOption as error:
        raise InvalidOption(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"{path} is not TOML: {error}") from None


def format_answer(value: Any) -> str:
    """An answer as a person types it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return f"{value:.9f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def default_of(name: str, given: Mapping[str, Any]) -> str:
    """The default as one types it, where the ``given`` answers are known."""
    rest = {key: value for key, value in given.items() if key != name}
    return format_answer(getattr(Workload.of(rest), name))


def template() -> str:
    """The file of a workload with every default, and the questions as comments."""
    lines = []
    for number, question in enumerate(QUESTIONS, 1):
        lines += ["", f"# {number}. {question.text} {question.why}"]
        for name in question.answers:
            row = ANSWERS[name]
            choices = f" ({', '.join(row.choices)})" if row.choices else ""
            value = _format_toml(getattr(Workload.of({}), name))
            lines.append(f"{name} = {value}  # {row.text}{choices}")
    return "\n".join(lines[1:])


def _format_toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    return format_answer(value) if isinstance(value, int | float) else f'"{format_answer(value)}"'
