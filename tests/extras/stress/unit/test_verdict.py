"""The verdict sees what is wrong, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmq.extras.stress.journal import (
    ACKED,
    ACKING,
    GOT,
    INTENT,
    PUT,
    CheckResult,
    Journal,
    Record,
    count_once,
    judge,
    read_all,
)
from shmq.extras.stress.workers import Bodies, TornBody, opened

#: Messages 0, 1, 2 of producer 1.
FIRST, SECOND, THIRD = (1 << 32 | number for number in range(3))


def counted(directory: Path, *journals: list[int], put: int = 3) -> CheckResult:
    for worker, messages in enumerate(journals, 2):
        journal = Journal(directory, worker, kept=1 << 16)
        journal.write(GOT, *messages)
        journal.close()
    return count_once(directory, {1: put})


def test_each_message_once_and_in_order_is_right(tmp_path: Path) -> None:
    verdict = counted(tmp_path, [FIRST, THIRD], [SECOND])

    assert verdict == CheckResult(put=3)
    assert not verdict.wrong()


@pytest.mark.parametrize(
    ("journals", "wrong"),
    [
        ([[FIRST], [SECOND]], {"lost": {THIRD}}),
        ([[FIRST, SECOND, THIRD], [SECOND]], {"twice": {SECOND}}),
        ([[SECOND, FIRST], [THIRD]], {"out_of_order": {FIRST}}),
        ([[FIRST, SECOND, THIRD, THIRD + 1]], {"unexpected": {THIRD + 1}}),
        ([[FIRST, SECOND, THIRD, 2 << 32]], {"unexpected": {2 << 32}}),
    ],
)
def test_what_is_not_once_is_wrong(
    tmp_path: Path, journals: list[list[int]], wrong: dict[str, set[int]]
) -> None:
    assert counted(tmp_path, *journals).wrong() == wrong


def test_a_message_that_was_delivered_and_never_settled_is_lost() -> None:
    """Its holder was killed, and it did not come back."""
    steps = [Record(1, 2, GOT, FIRST)]

    assert judge(steps, {2: 5}, {1: 1}).lost == {FIRST}
    assert judge([*steps, Record(2, 2, ACKING, FIRST)], {2: 5}, {1: 1}).lost == set()


def test_the_order_holds_across_consumers_where_it_is_promised() -> None:
    steps = [
        Record(at, at, kind, message)
        for at, message in enumerate((FIRST, THIRD, SECOND))
        for kind in (GOT, ACKED)
    ]

    assert judge(steps, {}, {1: 3}, ordered=True).out_of_order == {SECOND}
    assert judge(steps, {}, {1: 3}).wrong() == {}


def test_a_redelivery_is_counted(tmp_path: Path) -> None:
    steps = [Record(1, 2, GOT, FIRST), Record(6, 3, GOT, FIRST), Record(7, 3, ACKED, FIRST)]

    verdict = judge(steps, {2: 5}, {1: 1}, ordered=True)

    assert (verdict.redelivered, verdict.wrong()) == (1, {})


def test_journals_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    for worker, times in ((1, (3, 5)), (2, (4, 6))):
        journal = Journal(tmp_path, worker)
        for at in times:
            journal.write_at(at, ACKING, [FIRST, SECOND])
        journal.close()

    records = list(read_all(tmp_path))

    assert [(record.at, record.worker) for record in records[::2]] == [
        (3, 1),
        (4, 2),
        (5, 1),
        (6, 2),
    ]
    assert {record.kind for record in records} == {ACKING}
    assert {record.message for record in records} == {FIRST, SECOND}


def test_a_journal_that_was_cut_within_a_record_is_read_up_to_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1)
    journal.write(INTENT, FIRST)
    journal.write(PUT, FIRST)
    journal.close()
    path = tmp_path / "1.journal"
    path.write_bytes(path.read_bytes()[:-1])

    assert [record.kind for record in read_all(tmp_path)] == [INTENT]


def test_a_body_tells_what_it_is_and_whether_it_is_whole() -> None:
    body = Bodies(7, 100).make(3)

    assert opened(body, 100)[0] == 7 << 32 | 3
    for at in range(100):
        spoilt = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        with pytest.raises(TornBody, match="checksum"):
            opened(spoilt, 100)
    with pytest.raises(TornBody, match="99 bytes, 100 were put"):
        opened(body[:-1], 100)
    other = Bodies(7, 100).make(4)
    with pytest.raises(TornBody, match="checksum"):
        opened(body[:60] + other[60:], 100)
