"""Every row runs, with as little as shows that it works, and comes to the documents."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil
import pytest

from bench import record as recorded
from bench import report
from bench.__main__ import TABLES as ALL
from bench.__main__ import main
from bench.compiled import ROOT
from bench.disk import folder
from bench.disk.servers import Postgres, Redis
from bench.record import Record, RowRecord
from bench.row import Row
from bench.rows import rows

SHM = Path("/dev/shm")

#: The reason why a server is not there, by a part of its contestant's label.
LACKING = {"Redis": Redis.missing, "psycopg": Postgres.missing}

#: The tables: what is run, and what it is asked for with.
TABLES: dict[str, tuple[list[Row], list[str]]] = {
    name: (rows(table=made), [] if name == "local" else [f"--{name}"])
    for name, (made, _) in ALL.items()
}


def bench(*arguments: object) -> tuple[subprocess.Popen[str], str, str]:
    """The ended process, and what it wrote to its output and to its error output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed, complained = process.communicate(timeout=1500)
    return process, printed, complained


def _left_by(pid: int) -> list[str]:
    """What is in shared memory, and on disk, of the run with that number."""
    where = [SHM, *folder.candidates()]
    return [
        path.name
        for here in where
        if here.is_dir()
        for path in here.iterdir()
        if f"bench-{pid}-" in path.name
    ]


def _in_the_session(request: pytest.FixtureRequest, arguments: list[str]) -> str:
    """What a run prints that is made in this process, with the session of all tests."""
    request.getfixturevalue("spark")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", ["bench", *arguments])
        handler = signal.getsignal(signal.SIGTERM)
        try:
            main()
        finally:
            signal.signal(signal.SIGTERM, handler)
    return printed.getvalue()


@pytest.fixture(scope="module", params=TABLES)
def table(request: pytest.FixtureRequest) -> str:
    """The name of a table."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Runs every row of a table, once; the folder with the results."""

    @cache
    def measure(table: str) -> Path:
        folder = tmp_path_factory.mktemp("results")
        arguments = [*TABLES[table][1], "--tiny", "--results", str(folder / "results.json")]
        if table == "spark":
            pid, printed = os.getpid(), _in_the_session(request, arguments)
        else:
            process, printed, complained = bench(*arguments)
            assert process.returncode == 0, complained
            pid = process.pid
        assert _left_by(pid) == [], "the run left something behind"
        (folder / "printed").write_text(printed)
        return folder

    return measure


@pytest.fixture(scope="module")
def results(table: str, measured: Callable[[str], Path]) -> Path:
    """The folder with the results of a run of every row of the table."""
    return measured(table)


@pytest.fixture(scope="module")
def record(table: str, results: Path) -> Record:
    return recorded.read(results / "results.json")[table]


@pytest.mark.watchdog(1600)
def test_every_contestant_is_measured_and_printed(
    table: str, results: Path, record: Record
) -> None:
    words = " ".join((results / "printed").read_text().split())
    page = report.document(record)
    missing = []
    for row in TABLES[table][0]:
        found = record.row(row.key)
        assert f"({row.key}" in words
        labels = {contestant.label for contestant in row.contestants}
        assert {entry.label for entry in found.entries} == labels, row.key
        assert all(f"| {label} |" in page.replace("**", "") for label in labels), row.key
        missing += [
            (row.key, entry.label, entry.missing) for entry in found.entries if entry.missing
        ]
        for entry in found.entries:
            for figure in entry.figures.values():
                assert figure.median > 0, (row.key, entry.label)
            assert bool(entry.missing) == (not entry.figures), (row.key, entry.label)
        _check_verdicts(row, found)
    if missing:
        pytest.skip(f"all others were measured, these could not take part: {missing}")


def _check_verdicts(row: Row, found: RowRecord) -> None:
    """Every bar is judged, unless who it is about is missing; of one turn nothing is claimed."""
    missing = {entry.label for entry in found.entries if entry.missing}
    for bar, verdict in zip(row.bars, found.verdicts, strict=True):
        there = bar.ours not in missing and not (bar.others and missing.issuperset(bar.others))
        assert (verdict.met == "not measured") == (not there), (row.key, bar)
        assert verdict.met != "met", (row.key, bar)


def test_only_the_rows_asked_for_are_run() -> None:
    _, printed, _ = bench("--list", "--only", "packed")
    assert printed.split()[0] == "packed"
    assert len(printed.splitlines()) == 1
    _, _, complained = bench("--only", "pack")
    assert "there is no row 'pack': the rows are one-call" in complained


def test_no_part_of_a_table_is_recorded() -> None:
    before = recorded.RECORDED.read_bytes()
    process, _, complained = bench("--record", "--only", "packed", "--quick")
    assert process.returncode == 2
    assert "--record keeps a whole table" in complained
    assert recorded.RECORDED.read_bytes() == before


@pytest.mark.parametrize(
    ("row", "end"),
    [
        (["--only", "one-call", "--contestant", "shmq"], signal.SIGINT),
        (["--only", "one-call", "--contestant", "shmq"], signal.SIGTERM),
        (["--tcp", "--only", "tcp-produce", "--contestant", "shmq"], signal.SIGTERM),
        (["--disk", "--only", "disk-one", "--contestant", "Redis"], signal.SIGTERM),
        (["--disk", "--only", "disk-8-processes", "--contestant", "psycopg"], signal.SIGTERM),
        (["--disk", "--only", "disk-one", "--contestant", "shmq"], signal.SIGTERM),
    ],
    ids=["interrupt", "local", "tcp", "disk-peer", "disk-other-user", "disk"],
)
def test_a_run_that_is_ended_early_leaves_nothing(
    row: list[str], end: signal.Signals, tmp_path: Path
) -> None:
    lacking = LACKING.get(row[-1], folder.missing)() if "--disk" in row else None
    if lacking is not None:
        pytest.skip(lacking)
    command = [*row, "--results", str(tmp_path / "results.json")]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    while not _left_by(process.pid):
        assert process.poll() is None
        time.sleep(0.01)
    family = psutil.Process(process.pid).children(recursive=True)

    process.send_signal(end)
    process.communicate(timeout=60)

    assert process.returncode != 0
    assert not list(tmp_path.iterdir())
    assert _left_by(process.pid) == []
    assert psutil.wait_procs(family, timeout=60)[1] == []
