"""The run: visits to each row, and pairs of turns in each visit.

A visit opens the contestants of a row again, plays pairs of turns until the row's time is over,
and closes them. The first visit plays every pair a few times; after that only the pairs that
decide a bar are played.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from bench import machine
from bench.estimate import FEWEST, Estimate, estimate
from bench.mood import Mood
from bench.record import Entry, Ratio, Record, RowRecord
from bench.row import SECONDS, Bar, Contestant, Figure, Row, Turn
from bench.stage import Failed
from bench.verdict import judge

#: Called as often as there is something new with how many visits are over, and the one now.
Say = Callable[[int, str], None]
#: How often each pair is played in the first visit: the fewest turns that have an interval.
SCOUTED = FEWEST
#: A peer whose median ratio is worse by this factor than the best one's is not visited again.
FAR = 2.0
#: The most that the work of a turn is multiplied by while its amount is looked for.
STEP = 16
#: Turns of which the quickest tells how much work takes how long.
LOOKS = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long a run takes: visits to each row, seconds of a visit, and seconds of a turn.

    With 0 seconds of a visit each pair is played once; with 0 of a turn, turns are the shortest.
    """

    visits: int
    visit: float
    turn: float


#: A contestant's turn, and the amount of work that takes the time of a turn.
Opened = tuple[Turn, int]
#: Two contestants, the first being shmq; or one whose figures are not compared.
Pair = tuple[str, ...]


class Measured:
    """What the turns of a row yielded, by visit."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.crossings: list[float] = []
        #: By label and figure; by pair and figure.
        self.values: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
        self.ratios: dict[tuple[str, str, str], list[list[float]]] = defaultdict(list)
        self._there = {c.label for c in row.contestants if c.missing() is None}

    def visit(self) -> None:
        """Begin another visit."""
        for found in (*self.values.values(), *self.ratios.values()):
            found.append([])

    def add(self, label: str, key: str, value: float) -> None:
        """Add a turn's figure."""
        _last(self.values[label, key]).append(value)

    def divide(self, ours: str, other: str, key: str, ratio: float) -> None:
        """Add the ratio of a pair's figures."""
        _last(self.ratios[ours, other, key]).append(ratio)

    def ratio(self, bar: Bar) -> dict[str, Estimate]:
        """The estimates that decide the bar, by label; see :func:`bench.verdict.judge`."""
        if bar.others:
            keys = {other: (bar.ours, other, bar.key) for other in bar.others}
            return {
                other: estimate(self.ratios[key])
                for other, key in keys.items()
                if any(self.ratios.get(key, ()))
            }
        found = self.figure(bar.ours, self._figure(bar.key))
        return {bar.ours: found} if found else {}

    def figure(self, label: str, figure: Figure) -> Estimate | None:
        """The estimate of a contestant's figure; None if it had no turn."""
        values = self.values.get((label, figure.key), [])
        return estimate(values, figure.quantile) if any(values) else None

    def pairs(self) -> list[Pair]:
        """Every pair that a bar compares, and every contestant that none compares, once."""
        compared = [(ours, other) for _, ours, other in self.row.compared()]
        pairs: dict[Pair, None] = dict.fromkeys(
            pair for pair in compared if self._there.issuperset(pair)
        )
        known = {label for pair in pairs for label in pair}
        alone = [c.label for c in self.row.contestants if c.label in self._there - known]
        return [*pairs, *((label,) for label in alone)]

    def scouted(self) -> list[Pair]:
        """Every pair as often as the first visit plays it.

        A contestant that is compared with nothing, and whose turns cannot be made shorter, plays
        once.
        """
        fixed = {(c.label,) for c in self.row.contestants if c.least == c.most}
        return [pair for pair in self.pairs() for _ in range(1 if pair in fixed else SCOUTED)]

    def deciding(self) -> list[Pair]:
        """The pairs whose ratio may decide a bar, or the best of a row that has no bars."""
        bars = [bar for bar in self.row.bars if bar.others]
        bars = [bar for bar in bars if bar.bound] or bars
        near: dict[Pair, None] = {}
        for bar in bars:
            found = {other: each.median for other, each in self.ratio(bar).items()}
            for other, median in found.items():
                best = (min if self._figure(bar.key).higher_is_better else max)(found.values())
                if max(median / best, best / median) <= FAR:
                    near[bar.ours, other] = None
        known = {label for pair in near for label in pair}
        judged = {bar.ours for bar in self.row.bars if not bar.others} & self._there - known
        if bars:
            return [*near, *((label,) for label in judged)]
        return self.pairs()

    def _figure(self, key: str) -> Figure:
        return next(figure for figure in self.row.figures if figure.key == key)

    def record(self) -> RowRecord:
        """The estimates and verdicts."""
        return RowRecord(
            key=self.row.key,
            title=self.row.title,
            limit=self.row.limit,
            figures=list(self.row.figures),
            entries=[self._entry(contestant) for contestant in self.row.contestants],
            ratios=[
                Ratio(ours, other, key, estimate(found))
                for (ours, other, key), found in self.ratios.items()
            ],
            verdicts=[
                judge(bar, self.ratio(bar), self._figure(bar.key).higher_is_better)
                for bar in self.row.bars
            ],
            crossing=estimate([self.crossings]) if self.crossings else None,
        )

    def _entry(self, contestant: Contestant) -> Entry:
        figures = {f.key: self.figure(contestant.label, f) for f in self.row.figures}
        first = self.row.figures[0]
        visits = self.values.get((contestant.label, first.key), [])
        turns = [turn for visit in visits for turn in visit]
        best = max if first.higher_is_better else min
        median = figures[first.key]
        return Entry(
            label=contestant.label,
            role=contestant.role,
            note=contestant.note,
            missing=contestant.missing(),
            figures={key: found for key, found in figures.items() if found},
            best=best(turns) / median.median if median and median.median else None,
        )


def run(rows: Sequence[Row], plan: Plan, say: Say, seed: int | None = None) -> Record:
    """Measure the rows. Raises :class:`bench.stage.Failed` if a message was not as it was sent.

    The visits are outermost, so that the turns of a row are spread over the whole run. ``seed``
    fixes the order of the turns.
    """
    begun = time.monotonic()
    draw = random.Random(seed)
    mood = Mood()
    found = [Measured(row) for row in rows]
    over = itertools.count()
    for number in range(plan.visits):
        for measured in found:
            if measured.row.visits is None or number < measured.row.visits:
                step = f"visit {number + 1} of {plan.visits}: {measured.row.key}"
                now = functools.partial(say, next(over), step)
                now()
                _visit(measured, number == 0, plan, mood, draw, now)
    return Record(
        machine=machine.describe(),
        mood=mood.figures(),
        visits=plan.visits,
        turn=plan.turn,
        took=time.monotonic() - begun,
        rows=[measured.record() for measured in found],
    )


def _visit(
    measured: Measured,
    first: bool,
    plan: Plan,
    mood: Mood,
    draw: random.Random,
    now: Callable[[], None],
) -> None:
    """``now`` is called before each pair of turns, and never during one."""
    row = measured.row
    end = time.monotonic() + plan.visit * row.share
    pairs = measured.pairs() if first else measured.deciding()
    measured.visit()
    _look(measured, mood)
    with contextlib.ExitStack() as stack:
        opened = {}
        for contestant in row.contestants:
            if any(contestant.label in pair for pair in pairs):
                with _named(row, contestant.label):
                    turn = stack.enter_context(contestant.opened())
                    seconds = plan.turn and (row.turn or plan.turn)
                    opened[contestant.label] = turn, _amount(contestant, turn, seconds)
                now()
        if first:
            for pair in _drawn(measured.scouted() if plan.visit else pairs, draw):
                now()
                _play(measured, pair, opened, draw)
            pairs = measured.deciding()
        played = first
        while pairs and (not played or time.monotonic() < end):
            for pair in _drawn(pairs, draw):
                now()
                _play(measured, pair, opened, draw)
            played = True
    _look(measured, mood)


def _look(measured: Measured, mood: Mood) -> None:
    crossing = mood.look()
    if crossing is not None:
        measured.crossings.append(crossing)


def _drawn(pairs: Sequence[Pair], draw: random.Random) -> list[Pair]:
    """The pairs in an order that is drawn."""
    return draw.sample(pairs, len(pairs))


def _play(measured: Measured, pair: Pair, opened: dict[str, Opened], draw: random.Random) -> None:
    """Let the contestants of a pair play a turn each, in an order that is drawn."""
    found = {}
    for label in draw.sample(pair, len(pair)):
        turn, amount = opened[label]
        with _named(measured.row, label):
            found[label] = turn(amount)
        for figure in measured.row.figures:
            if figure.key in found[label]:
                measured.add(label, figure.key, found[label][figure.key])
    if len(pair) == 2:
        ours, other = pair
        keys = {bar.key for bar, *labels in measured.row.compared() if tuple(labels) == pair}
        for key in keys:
            measured.divide(ours, other, key, found[ours][key] / found[other][key])


def _amount(contestant: Contestant, turn: Turn, seconds: float) -> int:
    """The amount of work with which a turn takes about that many seconds."""
    amount = contestant.least
    if amount == contestant.most or not seconds:
        return amount
    while (took := _quickest(turn, amount)) < seconds / 4 and amount < contestant.most:
        factor = min(STEP, max(2, int(seconds / took)))
        amount = min(contestant.most, amount * factor)
    return max(contestant.least, min(contestant.most, round(amount * seconds / took)))


def _quickest(turn: Turn, amount: int) -> float:
    """Seconds of a turn that nothing disturbs: one hiccup would make all turns too short."""
    return min(turn(amount)[SECONDS] for _ in range(LOOKS))


def _last(visits: list[list[float]]) -> list[float]:
    """The turns of the current visit."""
    if not visits:
        visits.append([])
    return visits[-1]


@contextlib.contextmanager
def _named(row: Row, label: str) -> Iterator[None]:
    """Add to any error whose turn it was."""
    try:
        yield
    except Failed as error:
        raise Failed(f"{row.key}: {label}: {error}") from None
