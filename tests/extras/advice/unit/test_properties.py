"""What holds of the advice for any workload."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import shmq
from shmq.api.stream_options import StreamOptions
from shmq.extras.advice.program import command_line, python
from shmq.extras.advice.report import Advice, advise
from shmq.extras.advice.text import default_of, format_answer, read_text
from shmq.extras.advice.workload import ANSWERS, Answer, Workload
from tests.support.namespaces import own_namespace

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def values(row: Answer) -> some.SearchStrategy[Any]:
    """Any answer of a row, small ones more often."""
    if row.kind == "flag":
        return some.booleans()
    if row.kind == "choice":
        return some.sampled_from(row.choices)
    if row.kind == "words":
        return some.lists(some.sampled_from(row.choices), unique=True)
    if row.kind in {"count", "bytes"}:
        return some.integers(int(row.least), int(row.most))
    number = some.one_of(
        some.floats(row.least, min(row.most, 1000.0)), some.floats(row.least, row.most)
    )
    return some.none() | number if row.none else number


#: Any workload; what follows another answer does so, or is larger.
ANY = some.fixed_dictionaries(
    {}, optional={name: values(row) for name, row in ANSWERS.items() if row.follows is None}
)


def of(**answers: Any) -> Advice:
    return advise(Workload.of(answers), cores=4)


@pytest.fixture(scope="module")
def broker() -> Iterator[shmq.Broker]:
    with own_namespace() as name, shmq.connect(name) as made:
        yield made


@FEW
@given(ANY)
def test_the_advised_place_can_always_be_created(broker: shmq.Broker, answers: Any) -> None:
    advice = of(**answers)
    if advice.kind == "stream":
        StreamOptions.given(advice.options)
        return
    broker.create_queue("advised", dead_letter=None, **advice.options).close()
    broker.delete_queue("advised")


@FEW
@given(ANY)
def test_advice_is_json_and_its_program_is_python(answers: Any) -> None:
    advice = of(**answers)
    told = json.loads(json.dumps(advice.as_dict("jobs"), allow_nan=False))
    assert set(told["options"]) == set(advice.options)
    assert told["shmq"] is advice.is_shmq
    ast.parse(python(advice.plan, advice.settings, "jobs"))
    for line in command_line(advice.plan, advice.options, "jobs").splitlines():
        assert shlex.split(line)[0] == "shmq"
    assert advice.memory > 0 and advice.verdict() and len(advice.theory()) == 2


def held(advice: Advice) -> float:
    """How long a message stays with the consumer that works on it."""
    renewed = any(setting.name == "renewal" for setting in advice.settings)
    return math.inf if renewed else float(advice["visibility_timeout"])


WORK = some.floats(0, 1e6)


@FEW
@given(WORK, WORK)
def test_more_work_never_shortens_the_timeout(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert held(of(work_p50=0, work_p99=less)) <= held(of(work_p50=0, work_p99=more))
    assert held(of(work_p50=0, work_p99=more)) > more


RATES = some.floats(0, 1e6)


@FEW
@given(RATES, RATES, some.floats(0, 1), some.floats(0, 1e4))
def test_more_messages_never_take_less(one: float, other: float, work: float, out: float) -> None:
    less, more = (
        of(rate=each, work_p50=work, consumer_outage=out) for each in sorted((one, other))
    )
    assert less["consumers"] <= more["consumers"]
    assert less["capacity"] <= more["capacity"]
    assert less["arena_bytes"] <= more["arena_bytes"]
    assert more.plan.peak.busy <= 0.7 + 1e-6


@FEW
@given(WORK, WORK)
def test_longer_work_is_never_leased_further_ahead(one: float, other: float) -> None:
    less, more = (of(work_p50=each, work_p99=each) for each in sorted((one, other)))
    assert less["prefetch"] >= more["prefetch"] >= 1


@FEW
@given(some.sampled_from(["process", "server", "machine", "host", "site"]))
def test_what_survives_more_is_kept_on_more(survives: str) -> None:
    advice = of(survives=survives)
    on_disk = survives in {"machine", "host", "site"}
    assert (advice["durability"] == "journal") is on_disk
    assert advice.options.get("confirm", "memory") == ("disk" if on_disk else "memory")


@FEW
@given(some.data(), some.sampled_from(sorted(ANSWERS)))
def test_an_answer_that_is_written_is_read_as_itself(data: some.DataObject, name: str) -> None:
    row = ANSWERS[name]
    value = row.check(name, data.draw(values(row)))
    read = read_text(name, format_answer(value))
    assert (
        read == pytest.approx(value, rel=1e-9, abs=1e-9)
        if isinstance(value, float)
        else read == value
    )
    assert read_text(name, default_of(name, {})) == pytest.approx(
        getattr(Workload.of({}), name)
    ) or not isinstance(value, float)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_workload_is_one_of_all_answers_by_name(name: str) -> None:
    assert name in {field.name for field in dataclasses.fields(Workload)}
    assert ANSWERS[name].text
