"""Bodies as the pages show them."""

from __future__ import annotations

import pytest

from shmq.extras.console.pages.messages import as_hex
from shmq.extras.console.pages.rendering import as_text


def test_hexadecimal_lines_have_the_offset_and_the_characters() -> None:
    assert as_hex(b"") == ""
    assert as_hex(bytes(range(17))).splitlines() == [
        "000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................",
        f"000010  10{' ' * 45}  .",
    ]
    assert as_hex(b"<b>").endswith("<b>")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\tb", "a\n\tb"),
        ("\x00\x1b", "\\x00\\x1b"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\ud800", "\\ud800"),
        ("é漢", "é漢"),
    ],
)
def test_what_cannot_be_seen_is_an_escape(text: str, shown: str) -> None:
    assert as_text(text) == shown
