"""The table of environment variables is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

from shmq.api.environment import VARIABLES

ROOT = Path(__file__).resolve().parents[2]

#: A quoted name, alone or after the dollar of a help text; click's own begins with an underscore.
READ = re.compile(r"""["'\$](SHMQ_[A-Z_]+|CREDENTIALS_DIRECTORY)["',\]]""")

#: What has such a name and is not a variable: members of C and of an enum.
OTHERS = {"SHMQ_PRODUCERS"}


def test_every_variable_that_is_read_is_in_the_table_and_none_else() -> None:
    read = {
        name
        for path in (ROOT / "shmq").rglob("*.py")
        if path.name != "environment.py"
        for name in READ.findall(path.read_text())
    }
    assert read - OTHERS == {row.name for row in VARIABLES} - {"NO_COLOR"}


def test_no_name_is_twice_in_the_table() -> None:
    names = [row.name for row in VARIABLES]
    assert len(set(names)) == len(names)
