"""The documents have the recorded results, and nothing else between their marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import record, report
from bench.compiled import ROOT
from bench.estimate import Estimate
from bench.record import Entry, Ratio, Record, RowRecord
from bench.row import RATE, TIMES, times
from bench.verdict import judge

FOUND = Estimate(1.51234567, 1.4, 1.6, 120)
BAR = times("shmq put", "a peer", 1.5)


@pytest.fixture
def made() -> Record:
    """A run of one row."""
    entries = [
        Entry("shmq put", "shmq", "", None, {"rate": Estimate(3e6, 2.9e6, 3.1e6, 120)}, 1.2),
        Entry("a peer", "peer", "a note", None, {"rate": Estimate(2e6, 1.9e6, 2.1e6, 120)}, 1.1),
        Entry("another", "peer", "", "it is not installed", {}, None),
    ]
    row = RowRecord(
        "packed", "A row", "the limit", [RATE], entries,
        [Ratio("shmq put", "a peer", "rate", FOUND)],
        [judge(BAR, {"a peer": FOUND})],
        Estimate(61.0, 50.0, 90.0, 12),
    )  # fmt: skip
    machine: dict[str, str | int] = {
        "processor": "one", "cores": 2, "kernel": "6", "python": "3", "date": "2000-01-01",
    }  # fmt: skip
    return Record(machine, {"steal": 0.012, "load": 1.5}, 6, 0.015, 500.0, [row])


@pytest.mark.parametrize("name", ["README.md", "docs/internals/performance.md"])
def test_the_documents_are_as_recorded(name: str) -> None:
    text = (ROOT / name).read_text()
    for table, block in report.documents(record.read())[name].items():
        assert report.replaced(text, table, block, name) == text, (
            f"{name} differs from {record.RECORDED.name}: run python -m bench.report --write"
        )


def test_what_is_recorded_is_read_again(made: Record, tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    record.write({"local": made, "tcp": made}, path)
    once = path.read_text()
    found = record.read(path)
    assert list(found) == ["local", "tcp"]
    estimate = found["tcp"].row("packed").verdicts[0].estimate
    assert estimate == Estimate(1.512, 1.4, 1.6, 120)
    record.write(found, path)
    assert path.read_text() == once
    assert record.read(tmp_path / "absent.json") == {}


def test_the_page_has_the_targets_with_their_intervals(made: Record) -> None:
    shown = report.document(made)
    assert (
        f"| A row | shmq put | 1.51 {TIMES} (1.4 to 1.6) a peer | ≥ 1.5 {TIMES} | open |" in shown
    )
    assert "1.2% of the cores' time stolen; load up to 1.5" in shown


def test_the_readme_compares_what_is_recorded(
    made: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = report.Comparison("Puts", "local", "packed", "shmq put", "a peer")
    named = replace(here, name="a peer, which acknowledges nothing")
    absent = replace(here, table="tcp")
    monkeypatch.setattr(report, "COMPARISONS", (here, named, absent))
    shown = report.summary({"local": made})
    assert f"| Puts | 3 M | a peer | 2 M | 1.51 {TIMES} (1.4 to 1.6) |" in shown
    assert "| a peer, which acknowledges nothing | 2 M |" in shown
    assert shown.count("| Puts |") == 2
    assert "one, 2 cores, Python 3, 2000-01-01." in shown
    assert "No results are recorded: `make bench-record`" in report.summary({})


def test_the_readme_compares_with_what_is_used_today() -> None:
    shown = report.summary(record.read())
    for name in ("multiprocessing.Queue", "Redis", "RabbitMQ", "a bare ring"):
        assert shown.count(f"| {name}") + shown.count(f"Celery on {name}") == 1


def test_the_page_has_every_contestant_its_ratio_and_the_mood(made: Record) -> None:
    shown = report.document(made)
    assert "| **shmq put** | 3 M (2.9 M to 3.1 M) |  | 120 |  |" in shown
    assert f"| a peer | 2 M (1.9 M to 2.1 M) | 1.51 {TIMES} (1.4 to 1.6) | 120 | a note |" in shown
    assert "| another |  |  |  | it is not installed |" in shown
    assert "A cache line crossed between the cores in 61 (50 to 90) ns." in shown
    assert "What limits it: the limit." in shown


def test_the_blocks_are_written_between_the_marks(
    made: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = report.BLOCKS["local"].lines
    pages = {name: tuple(blocks) for name, blocks in report.documents({}).items()}
    assert set(pages["docs/internals/performance.md"]) == set(report.BLOCKS)
    for name, tables in pages.items():
        page = tmp_path / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(
            "".join(f"before\n{'old'.join(report.BLOCKS[each].lines)}" for each in tables)
        )
    monkeypatch.setattr(
        report, "COMPARISONS",
        (report.Comparison("Puts", "local", "packed", "shmq put", "a peer"),),
    )  # fmt: skip
    report.write({"local": made}, tmp_path)
    text = (tmp_path / "README.md").read_text()
    begin, end = report.BLOCKS[report.RESULTS].lines
    assert text == f"before\n{begin}{report.summary({'local': made})}{end}"
    text = (tmp_path / "docs/internals/performance.md").read_text()
    assert text.startswith(f"before\n{begin}{report.results({'local': made})}{end}before\n")
    assert f"before\n{first}{report.document(made)}{last}before\n" in text
    assert "old" not in text
    assert "No results are recorded: `make bench-tcp BENCH=--record`" in text


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md has no lines <!-- measured -->"):
        report.replaced("nothing\n", "local", "text", "README.md")


@pytest.mark.parametrize(
    ("low", "high", "place"),
    [(1.1, 1.3, report.AHEAD), (0.9, 1.1, report.LEVEL), (0.5, 0.9, report.BEHIND)],
)
def test_the_results_say_where_shmq_is_ahead_and_behind(
    made: Record, low: float, high: float, place: str
) -> None:
    (row,) = made.rows
    verdict = judge(BAR, {"a peer": Estimate((low + high) / 2, low, high, 120)})
    shown = report.results({"tcp": replace(made, rows=[replace(row, verdicts=[verdict])])})
    assert f"### {place}\n" in shown
    assert shown.count("### ") == 1
    assert shown.count("| over TCP | A row | shmq put | a peer |") == 1
    assert ("the limit" in shown) == (place == report.BEHIND)
    costs = [replace(RATE, higher_is_better=False)]
    turned = replace(made, rows=[replace(row, figures=costs, verdicts=[verdict])])
    other = {report.AHEAD: report.BEHIND, report.BEHIND: report.AHEAD}.get(place, place)
    assert f"### {other}\n" in report.results({"tcp": turned})


def test_a_ratio_without_an_interval_puts_shmq_nowhere(made: Record) -> None:
    (row,) = made.rows
    verdict = judge(BAR, {"a peer": Estimate(0.6, None, None, 3)})
    record = replace(made, rows=[replace(row, verdicts=[verdict])])
    assert "### " not in report.results({"local": record})
    shown = report.document(record)
    assert f"0.6 {TIMES} a peer" in shown
