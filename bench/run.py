"""The run: every contestant of every row in turn, again and again."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence

from bench import machine
from bench.record import Entry, Record, RowRecord
from bench.row import Contestant, Row
from bench.stage import Failed

#: Reports the current step.
Say = Callable[[str], None]


def run(rows: Sequence[Row], repetitions: int, seconds: float, say: Say) -> Record:
    """Measure the rows. Each turn takes about ``seconds``; 0: as short as possible.

    The repetitions are outermost, so the turns of a contestant are spread over the whole run.
    Raises :class:`bench.stage.Failed` if a received message differs from the one sent.
    """
    taking_part = [
        (row, contestant)
        for row in rows
        for contestant in row.contestants
        if contestant.missing() is None
    ]
    for row, contestant in taking_part:
        if seconds:
            say(f"{row.key}: {contestant.label}: how much fits into {seconds} s")
            with _named(row, contestant):
                contestant.calibrate(seconds)
    turns: dict[Contestant, list[dict[str, float]]] = {c: [] for _, c in taking_part}
    for repetition in range(1, repetitions + 1):
        for row, contestant in taking_part:
            if contestant.turns is not None and repetition > contestant.turns:
                continue
            say(f"{repetition} of {repetitions}: {row.key}: {contestant.label}")
            with _named(row, contestant):
                turns[contestant].append(contestant.turn())
    return Record(
        machine=machine.describe(),
        repetitions=repetitions,
        seconds=seconds,
        rows=[_record(row, turns) for row in rows],
    )


@contextlib.contextmanager
def _named(row: Row, contestant: Contestant) -> Iterator[None]:
    """Add to any error whose turn it was."""
    try:
        yield
    except Failed as error:
        raise Failed(f"{row.key}: {contestant.label}: {error}") from None


def _record(row: Row, turns: dict[Contestant, list[dict[str, float]]]) -> RowRecord:
    entries = [
        Entry(
            label=contestant.label,
            role=contestant.role,
            note=contestant.note,
            missing=contestant.missing(),
            values={
                figure.key: [turn[figure.key] for turn in turns.get(contestant, [])]
                for figure in row.figures
            },
        )
        for contestant in row.contestants
    ]
    medians = {
        entry.label: {key: statistics.median(values) for key, values in entry.values.items()}
        for entry in entries
        if entry.missing is None
    }
    return RowRecord(
        key=row.key,
        title=row.title,
        limit=row.limit,
        figures=list(row.figures),
        entries=entries,
        verdicts=[bar.verdict(medians) for bar in row.bars],
    )
