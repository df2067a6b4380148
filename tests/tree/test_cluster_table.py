"""The table of docs/integrate/cluster.md agrees with the tests, and each row has a test."""

from __future__ import annotations

from tools import cluster


def test_the_table_is_current() -> None:
    text = (cluster.ROOT / cluster.PAGE).read_text()
    assert cluster.render(text) == text, "a mark has changed: make options"
    assert all(f"| {row.item} | {row.verdict} |" in text for row in cluster.rows())


def test_every_verdict_is_one_of_four_and_said_once() -> None:
    found = cluster.rows()
    assert {row.verdict for row in found} == set(cluster.VERDICTS)
    items = [row.item for row in found]
    assert len(items) == len(set(items))
