"""The language of the sources and the pages: phrases that have a common replacement."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Each phrase, how often it may occur in shmq, docs and README.md, and what to write instead.
PHRASES: Final = {
    r"told": (10, "reported, message, reason, notified; a callback is `on_event`"),
    r"is no(?! longer)": (25, "is not a X; X does not exist"),
    r"anew|for want of": (10, "again; for lack of"),
    r"lets? go of": (2, "releases"),
    r"there is no such": (0, "no such X exists; X does not exist"),
}
#: Names of functions that are a bare participle: verb + object says what the function does.
PARTICIPLES: Final = re.compile(
    r"^\s*(?:async )?def (_(?:told|kept|came|seen|meant|checked|converted|decoded|parsed|packed"
    r"|listed|opened|found|made|asked|shown|taken|named|chosen|sent|written|answered|looked))\(",
    re.MULTILINE,
)
_TEXT: Final = {".c", ".h", ".html", ".md", ".py", ".pxi", ".pyi", ".pyx", ".toml"}


def sources(*places: str) -> list[Path]:
    """The text files of these places."""
    found = [
        path
        for place in places
        for path in ((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place])
    ]
    return [path for path in found if path.suffix in _TEXT]


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_is_rare(phrase: str) -> None:
    most, instead = PHRASES[phrase]
    pattern = re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE)
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources("shmq", "docs", "README.md")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert len(lines) <= most, f"write {instead}:\n" + "\n".join(lines)


def test_no_function_is_named_by_a_bare_participle() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[1]}"
        for path in sources("shmq")
        for match in PARTICIPLES.finditer(path.read_text())
    ]
    assert found == []
