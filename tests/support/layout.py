"""The layout of a segment, as the compiler reports it, so that no test contains a number."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).resolve().parents[2] / "shmq/core"

_PROGRAM = """
#include <stdio.h>
#include "stream/group_state.h"
#include "stream/layout.h"

int main(void)
{{
    printf("%llu", (unsigned long long)({expression}));
    return 0;
}}
"""


@functools.cache
def value_of(expression: str) -> int:
    """The compiler's value of a C expression over the layout of segments."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "ask.c", Path(folder) / "ask"
        source.write_text(_PROGRAM.format(expression=expression))
        compiler = [os.environ.get("CC", "cc"), "-std=gnu11", f"-I{_SOURCES}"]
        subprocess.run([*compiler, source, "-o", program], check=True)
        return int(subprocess.run([program], check=True, capture_output=True).stdout)


def place_of(member: str, struct: str = "shmq_header") -> slice:
    """The bytes of a member, or of a nested member, in its struct; the header begins at 0."""
    start = value_of(f"offsetof(struct {struct}, {member})")
    return slice(start, start + value_of(f"sizeof(((struct {struct} *)0)->{member})"))
