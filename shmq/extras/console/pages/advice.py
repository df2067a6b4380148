"""Advice: a form with the questions about a workload, and what suits it. It changes nothing."""

from __future__ import annotations

from typing import Any, Final

from shmq.errors import InvalidOption
from shmq.extras.advice.load import ASSUMPTIONS
from shmq.extras.advice.plot import points
from shmq.extras.advice.question import QUESTIONS
from shmq.extras.advice.report import Advice, advise
from shmq.extras.advice.text import default_of, read_text
from shmq.extras.advice.workload import ANSWERS, Workload
from shmq.extras.console.pages.visit import Shown, Visit, page

_MOST: Final = 200
_NAME: Final = "jobs"
#: The size of the drawing of the wait over the load.
_WIDTH, _HEIGHT = 480, 160


@page("/advice")
def show_advice(visit: Visit) -> Shown:
    """The questions, and below them the advice, once there are answers."""
    typed = {name: text for name in ANSWERS if (text := visit.text(name, _MOST))}
    found, problem = None, None
    if typed:
        try:
            found = advise(Workload.of({name: read_text(name, typed[name]) for name in typed}))
        except InvalidOption as error:
            problem = str(error)
    return Shown(
        "advice.html",
        {
            "questions": QUESTIONS,
            "answers": ANSWERS,
            "typed": typed,
            "defaults": {name: default_of(name, {}) for name in ANSWERS},
            "problem": problem,
            "advice": found,
            **(_describe_advice(found) if found is not None else {}),
        },
    )


def _describe_advice(found: Advice) -> dict[str, Any]:
    load, peak = found.plan.load, found.workload.peak_rate
    return {
        "assumptions": ASSUMPTIONS,
        "program": found.python(_NAME),
        "command": found.shell(_NAME),
        "width": _WIDTH,
        "height": _HEIGHT,
        "points": points(load, _WIDTH, _HEIGHT),
        "most": load.most,
        "peak_at": min(peak / load.most, 1.0) * _WIDTH,
    }
