"""The load generator finds what is lost, doubled, reordered or damaged by a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.compiled import FLAGS, ROOT, compiled, no_compiler
from bench.tcp.load import SOURCES

pytestmark = pytest.mark.skipif(no_compiler() is not None, reason="it takes a C compiler")

PROGRAMS = [SOURCES, *sorted((ROOT / "bench/limits").glob("*.c"))]
WORKS = ["produce", "batch", "consume", "subscribe"]
#: Messages of a round. The first round is not timed.
COUNT = 500
#: Seconds until a message counts as lost, where one is.
SOON = 2


@contextmanager
def faulty(fault: str, at: int) -> Iterator[int]:
    """The port of a broker that does that to the message with that number."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.prove.bench.faulty_broker", fault, str(at)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def load(work: str, port: int, *more: object) -> subprocess.CompletedProcess[str]:
    given = ["-p", port, "-n", COUNT, "-b", 10, "-w", 50, *more]
    return subprocess.run(
        [str(compiled(SOURCES)), work, *map(str, given)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_every_program_compiles_without_a_warning(program: Path, tmp_path: Path) -> None:
    files = sorted(program.glob("*.c")) if program.is_dir() else [program]
    assert {"-Wall", "-Wextra", "-Werror"} <= set(FLAGS)
    command = ["cc", *FLAGS, *map(str, files), "-o", str(tmp_path / "program")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("work", [*WORKS, "ping"])
def test_a_sound_broker_is_measured(work: str) -> None:
    with faulty("none", 0) as port:
        ended = load(work, port, "-r", 2)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert found["work"] == work
    assert found["messages"] == 2 * COUNT
    assert found["rate"] == pytest.approx(found["messages"] / found["seconds"], rel=1e-3)
    assert 0 < found["p50"] <= found["p90"] <= found["p99"] <= found["most"]


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("lose", f"no answer came within {SOON} s"),
        ("double", "was delivered after"),
        ("reorder", "was delivered after"),
        ("damage", "came with other bytes than were sent"),
        ("shorten", "a body of 63 bytes came where 64 were sent"),
    ],
)
def test_a_faulty_message_is_found(work: str, fault: str, complaint: str) -> None:
    patience = ["-t", SOON] if fault == "lose" else []
    with faulty(fault, COUNT + COUNT // 2) as port:
        ended = load(work, port, "-r", 2, *patience)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert complaint in ended.stderr


def test_a_faulty_message_of_the_round_that_is_not_timed_is_found() -> None:
    with faulty("damage", 5) as port:
        ended = load("consume", port, "-r", 2)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "came with other bytes than were sent" in ended.stderr


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("number", "sequence number 4 was told after 4"),
        ("refuse", "status 1, id 5, where a REPLY of status 0"),
    ],
)
def test_a_wrong_answer_is_found(fault: str, complaint: str) -> None:
    with faulty(fault, 5) as port:
        ended = load("produce", port)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert complaint in ended.stderr


def test_a_server_that_hangs_up_or_is_not_there_is_told() -> None:
    with faulty("none", 0) as port:
        pass
    ended = load("produce", port)
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}: Connection refused" in ended.stderr


@pytest.mark.parametrize(
    ("given", "complaint"),
    [(["no-such-work"], "there is no work called no-such-work"), (["ping", "-c", "0"], "0 is no")],
)
def test_what_is_asked_for_wrongly_is_told(given: list[str], complaint: str) -> None:
    command = [str(compiled(SOURCES)), *given, "-p", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert complaint in ended.stderr
