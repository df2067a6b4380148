"""What goes to the journal of systemd has priorities and no time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

LOGGING = """
import logging, os
status = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino + OTHER}"
from shmq.host.supervision.stderr import show_on_stderr
show_on_stderr("shmq", logging.DEBUG)
log = logging.getLogger("shmq")
log.debug("one"); log.info("two"); log.warning("three\\nfour"); log.error("five")
"""


def logged(other: int = 0, **more: str) -> list[str]:
    program = LOGGING.replace("OTHER", str(other))
    environment = {**os.environ, **more}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return run.stderr.splitlines()


def test_each_line_has_the_priority_of_its_level() -> None:
    assert logged() == ["<7>one", "<6>two", "<4>three", "<4>four", "<3>five"]


def test_json_has_the_priority_in_front_which_the_journal_takes_off() -> None:
    lines = logged(SHMQ_LOG_FORMAT="json")
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>"]
    assert json.loads(lines[2][3:])["message"] == "three\nfour"


@pytest.mark.parametrize("other", [1])
def test_a_stream_that_is_not_the_journal_has_times_and_no_priority(other: int) -> None:
    assert all(line[:2] == "20" or line == "four" for line in logged(other))
