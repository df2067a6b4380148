"""A workload: the table of the answers to the questions of :mod:`shmq.extras.advice.question`.

Each field of :class:`Workload` is an answer with its default, and its :class:`Answer` is the rest
of the row. The command's prompts, the file ``workload.toml`` and the form of the console are made
from the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from shmq.errors import InvalidOption
from shmq.suggestions import suggest

Kind = Literal["rate", "seconds", "bytes", "count", "share", "choice", "words", "flag"]

DAY: Final = 86_400.0
YEAR: Final = 366 * DAY
#: Of a longer value an error shows only so many characters.
_LONGEST: Final = 60


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A row of the table of answers, without its name and its default."""

    kind: Kind
    #: What it is, in a few words.
    text: str
    least: float = 0
    most: float = 1e12
    #: Of a choice, or of words: which there are.
    choices: tuple[str, ...] = ()
    #: What None means. Empty: None is not an answer.
    none: str = ""
    #: Without an answer it is this one, times the factor; it may not be less than that one.
    follows: tuple[str, float] | None = None

    def check(self, name: str, value: Any) -> Any:
        """The value, as its type. Raises :class:`~shmq.InvalidOption` if it is not such answer."""
        if value is None and (self.none or self.follows):
            return None
        if self.kind == "flag":
            return self._check(name, value, isinstance(value, bool), "yes or no")
        if self.kind == "choice":
            return self._check(name, value, value in self.choices, f"one of {self._list()}")
        if self.kind == "words":
            known = isinstance(value, tuple | list) and all(one in self.choices for one in value)
            return tuple(self._check(name, value, known, f"some of {self._list()}"))
        return self._number(name, value)

    def _number(self, name: str, value: Any) -> int | float:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        inside = plain and self.least <= value <= self.most
        unit = {"rate": " a second", "seconds": " seconds", "bytes": " bytes"}.get(self.kind, "")
        self._check(name, value, inside, f"{self.least:,.13g} to {self.most:,.13g}{unit}")
        if self.kind in {"bytes", "count"}:
            return int(self._check(name, value, value == int(value), "a whole number"))
        return float(value)

    def _check(self, name: str, value: Any, right: bool, form: str) -> Any:
        if not right:
            shown = repr(value)
            shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
            raise InvalidOption(f"{name}={shown}: it is {form}")
        return value

    def _list(self) -> str:
        return ", ".join(self.choices)


def _answer(default: Any, kind: Kind, text: str, **row: Any) -> Any:
    return dataclasses.field(
        default=default, metadata={"answer": Answer(kind=kind, text=text, **row)}
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is known of a workload. Times are in seconds, sizes in bytes, rates per second."""

    rate: float = _answer(50.0, "rate", "messages a second, on average", most=1e9)
    peak_rate: float = _answer(None, "rate", "at the peak", most=1e9, follows=("rate", 3.0))
    burst: float = _answer(10.0, "seconds", "how long a peak lasts", most=YEAR)

    body_p50: int = _answer(1024, "bytes", "the median body", most=1 << 33)
    body_p99: int = _answer(
        None, "bytes", "the 99th percentile", most=1 << 33, follows=("body_p50", 4.0)
    )

    work_p50: float = _answer(0.02, "seconds", "the median work on a message", most=YEAR)
    work_p99: float = _answer(
        None, "seconds", "the 99th percentile", most=YEAR, follows=("work_p50", 4.0)
    )
    work_kind: str = _answer(
        "waits",
        "choice",
        "whether it waits for something else, or computes",
        choices=("waits", "computes"),
    )

    order: str = _answer("none", "choice", "which order is kept", choices=("none", "key", "total"))
    keys: int = _answer(1000, "count", "how many keys there are", least=1)
    largest_key: float = _answer(
        0.0, "share", "the busiest key's part of all messages, 0 to 1", most=1.0
    )

    readers: str = _answer(
        "pool",
        "choice",
        "whether one pool shares the messages, each group gets a copy, or readers go back",
        choices=("pool", "copies", "replay"),
    )
    groups: int = _answer(1, "count", "how many groups of consumers", least=1, most=10_000)

    replay_for: float = _answer(
        0.0, "seconds", "how long a message that was read may be read again", most=30 * YEAR
    )

    survives: str = _answer(
        "process",
        "choice",
        "the largest loss that messages survive",
        choices=("nothing", "process", "server", "machine", "host", "site"),
    )

    duplicates: str = _answer(
        "harmless", "choice", "what a second delivery does", choices=("harmless", "harmful")
    )
    producer_outage: float = _answer(
        60.0, "seconds", "how long a producer may repeat a put", most=YEAR
    )
    with_row: bool = _answer(False, "flag", "whether it commits with a row of a database")

    useful_for: float | None = _answer(
        None,
        "seconds",
        "the latest age at which a message is of use",
        least=0.001,
        most=YEAR,
        none="always",
    )
    consumer_outage: float = _answer(
        60.0, "seconds", "how long all consumers may be away", most=YEAR
    )

    producer_hosts: int = _answer(1, "count", "hosts with producers", least=1, most=1_000_000)
    consumer_hosts: int = _answer(1, "count", "hosts with consumers", least=1, most=1_000_000)
    one_process: bool = _answer(False, "flag", "whether all of it is one process")
    producers: str = _answer(
        "batch",
        "choice",
        "what produces: web requests, batches, or frames of which the newest counts",
        choices=("request", "batch", "frames"),
    )

    languages: tuple[str, ...] = _answer(
        ("python",),
        "words",
        "languages of producers and consumers",
        choices=("python", "c", "java", "go", "javascript", "other"),
    )
    runs: tuple[str, ...] = _answer(
        (), "words", "what runs already", choices=("postgres", "rabbitmq", "kafka", "redis", "aws")
    )
    connectors: bool = _answer(False, "flag", "whether ready connectors to databases are needed")
    operators: bool = _answer(True, "flag", "whether somebody operates servers")

    failure: str = _answer(
        "transient",
        "choice",
        "why work fails: an outage, a bad message, a limited API; or it is never or always retried",
        choices=("transient", "poison", "limited", "never", "always"),
    )
    limit_window: float = _answer(60.0, "seconds", "the window of a rate limit", most=DAY)
    workflow: bool = _answer(
        False, "flag", "whether a message starts steps over days, with timers or compensation"
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Workload:
        """The workload with the ``given`` answers, and the defaults of the others.

        Raises :class:`~shmq.InvalidOption` for an answer that is unknown or out of range, and for
        a peak that is below its mean, or a 99th percentile below its median.
        """
        found = check_answers(given)
        whole = {name: found.get(name, getattr(_DEFAULTS, name)) for name in ANSWERS}
        for name, row in ANSWERS.items():
            if row.follows is None:
                continue
            other, factor = row.follows
            if whole[name] is None:
                whole[name] = ANSWERS[other].check(name, min(whole[other] * factor, row.most))
            elif whole[name] < whole[other]:
                raise InvalidOption(
                    f"{name}={whole[name]!r} is less than {other}={whole[other]!r}: "
                    f"give that, or more"
                )
        return cls(**whole)

    def as_dict(self) -> dict[str, Any]:
        """The answers by name."""
        return {name: getattr(self, name) for name in ANSWERS}


def check_answers(given: Mapping[str, Any]) -> dict[str, Any]:
    """The answers, each as its type. Raises :class:`~shmq.InvalidOption` for one that is wrong."""
    for name in given:
        if name not in ANSWERS:
            raise InvalidOption(f"unknown answer {name!r} of a workload: {suggest(name, ANSWERS)}")
    return {name: ANSWERS[name].check(name, value) for name, value in given.items()}


#: The defaults, before those are filled in that follow other answers.
_DEFAULTS: Final = Workload()

#: The rows of the table, by name.
ANSWERS: Final[dict[str, Answer]] = {
    field.name: field.metadata["answer"] for field in dataclasses.fields(Workload)
}
