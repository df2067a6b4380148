"""Every row runs, with as little as shows that it works, and comes to the documents."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil
import pytest

from bench import report
from bench.compiled import ROOT
from bench.disk import folder
from bench.disk.rows import DISK
from bench.disk.servers import Redis
from bench.record import DISK_RESULTS, LOCAL_RESULTS, SPARK_RESULTS, TCP_RESULTS, Record
from bench.row import Row, number
from bench.rows import LOCAL, rows
from bench.spark.rows import SPARK
from bench.tcp.rows import TCP

SHM = Path("/dev/shm")

#: The tables: what is run, what it is asked for with, and where its results are.
TABLES: dict[str, tuple[list[Row], list[str], str]] = {
    "local": (rows(table=LOCAL), [], LOCAL_RESULTS),
    "tcp": (rows(table=TCP), ["--tcp"], TCP_RESULTS),
    "disk": (rows(table=DISK), ["--disk"], DISK_RESULTS),
    "spark": (rows(table=SPARK), ["--spark"], SPARK_RESULTS),
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
    printed, complained = process.communicate(timeout=280)
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


@pytest.fixture(scope="module", params=TABLES)
def table(request: pytest.FixtureRequest) -> str:
    """The name of a table."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs every row of a table, once; the folder with the results."""
    pytest.importorskip("matplotlib", reason="the plots take matplotlib: install shmq[bench]")

    @cache
    def measure(table: str) -> Path:
        folder = tmp_path_factory.mktemp("results")
        process, printed, complained = bench(*TABLES[table][1], "--tiny", "--results", folder)
        assert process.returncode == 0, complained
        assert _left_by(process.pid) == [], "the run left something behind"
        (folder / "printed").write_text(printed)
        return folder

    return measure


@pytest.fixture(scope="module")
def results(table: str, measured: Callable[[str], Path]) -> Path:
    """The folder with the results of a run of every row of the table."""
    return measured(table)


@pytest.fixture(scope="module")
def record(table: str, results: Path) -> Record:
    return Record.read(results / TABLES[table][2])


def test_every_contestant_is_measured_printed_and_drawn(
    table: str, results: Path, record: Record
) -> None:
    words = " ".join((results / "printed").read_text().split())
    missing = []
    for row in TABLES[table][0]:
        found = record.row(row.key)
        assert f"({row.key})" in words
        for verdict in found.verdicts:
            assert f"{verdict.bar}: {verdict.measured}" in words, row.key
        assert {entry.label for entry in found.entries} == {
            contestant.label for contestant in row.contestants
        }, row.key
        missing += [
            (row.key, entry.label, entry.missing) for entry in found.entries if entry.missing
        ]
        present = [entry for entry in found.entries if not entry.missing]
        for entry in present:
            for figure in found.figures:
                (value,) = entry.values[figure.key]
                assert value > 0, (row.key, entry.label, figure.key)
        if present:
            assert (results / f"{row.key}.png").read_bytes().startswith(b"\x89PNG"), row.key
    if missing:
        pytest.skip(f"all others were measured, these could not take part: {missing}")


def test_only_the_rows_asked_for_are_run() -> None:
    _, printed, _ = bench("--list", "--only", "consume")
    assert printed.split()[0] == "consume"
    assert len(printed.splitlines()) == 1
    _, _, complained = bench("--only", "consum")
    assert "there is no row 'consum': the rows are one-call" in complained


@pytest.mark.parametrize(
    ("row", "end"),
    [
        (["--only", "one-call", "--contestant", "shmq"], signal.SIGINT),
        (["--only", "one-call", "--contestant", "shmq"], signal.SIGTERM),
        (["--tcp", "--only", "tcp-produce", "--contestant", "shmq"], signal.SIGTERM),
        (["--disk", "--only", "disk-one", "--contestant", "Redis"], signal.SIGTERM),
        (["--disk", "--only", "disk-one", "--contestant", "shmq"], signal.SIGTERM),
    ],
    ids=["interrupt", "local", "tcp", "disk-peer", "disk"],
)
def test_a_run_that_is_ended_early_leaves_nothing(
    row: list[str], end: signal.Signals, tmp_path: Path
) -> None:
    lacking = (folder.missing() or Redis.missing()) if "--disk" in row else None
    if lacking is not None:
        pytest.skip(lacking)
    command = [*row, "--seconds", "60"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", *command, "--results", str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not _left_by(process.pid):
        assert process.poll() is None
        time.sleep(0.01)
    family = psutil.Process(process.pid).children(recursive=True)

    process.send_signal(end)
    process.communicate(timeout=60)

    assert process.returncode != 0
    assert _left_by(process.pid) == []
    assert psutil.wait_procs(family, timeout=60)[1] == []


# ---- the documents ----


def test_the_whole_table_is_written_between_the_marks(record: Record, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}what was there\n{report.END}after\n")

    report.replace(page, report.document(record))
    once = page.read_text()
    report.replace(page, report.document(record))

    assert page.read_text() == once
    assert once.startswith("before\n") and once.endswith("after\n") and "what was there" not in once
    for row in record.rows:
        assert f"### {row.title}\n" in once
        for entry in row.entries:
            assert entry.label in once
        for verdict in row.verdicts:
            assert f"| {verdict.bar} | {verdict.measured} |" in once


@pytest.mark.parametrize("table", ["local"], indirect=True, scope="module")
def test_the_ratios_are_those_of_the_medians(record: Record) -> None:
    row = record.row("one-call")
    ours = row.entry("shmq put, get, ack").median("rate")
    base = row.entry("multiprocessing.Queue").median("rate")
    assert f"| {ours / base:.1f} {report.TIMES} |" in report.ratios(record)


@pytest.mark.parametrize("table", ["tcp"], indirect=True, scope="module")
def test_the_rates_are_the_medians(record: Record) -> None:
    shown = report.rates(record)
    for key, title, label in report.RATES:
        ours = record.row(key).entry(label).median("rate")
        assert f"| {title} | {number(ours)} |" in shown


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="has no lines <!-- measured -->"):
        report.replace(page, "text")
    assert page.read_text() == "nothing\n"


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md"])
def test_the_documents_have_the_marks(name: str) -> None:
    text = (ROOT / name).read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1
    assert text.count(report.TCP_BEGIN) == text.count(report.TCP_END) == 1


def test_the_page_has_the_marks_of_what_is_on_disk() -> None:
    text = (ROOT / "docs/performance.md").read_text()
    assert text.count(report.DISK_BEGIN) == text.count(report.DISK_END) == 1


def test_the_page_has_the_marks_of_what_is_on_spark() -> None:
    text = (ROOT / "docs/performance.md").read_text()
    assert text.count(report.SPARK_BEGIN) == text.count(report.SPARK_END) == 1


def test_a_missing_peer_is_named_with_the_reason(record: Record) -> None:
    for row in record.rows:
        for entry in row.entries:
            assert entry.missing is None or entry.missing
            assert bool(entry.missing) == (not any(entry.values.values()))
