"""A knob: one thing to set, with the reason and the number that triggered it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One thing to set."""

    name: str
    value: Any
    #: ``option``: of the queue or the stream, when it is made. ``use``: of those that use it.
    place: Literal["option", "use"] = "option"
    #: The rule.
    reason: str
    #: The numbers of the workload that the rule was applied to.
    trigger: str
    #: What is seen where it is set otherwise; empty: nothing in particular.
    fault: str = ""

    @property
    def shown(self) -> str:
        """The value as a person reads it."""
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        if isinstance(self.value, int):
            return f"{self.value:,}"
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


#: What a rule gives: knobs, and as text what to be careful of.
Rule = Knob | str
