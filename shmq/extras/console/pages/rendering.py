"""Templates: each value is escaped, and a name that is not there is an error."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2

from shmq.api.names import shown_name
from shmq.extras.console.pages import words

_TEMPLATES: Final = Path(__file__).with_name("templates")


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for name in ("amount", "moment", "number", "option", "rate", "size", "span"):
        made.filters[name] = getattr(words, name)
    made.filters["shown"] = shown_name
    return made


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """The page."""
    return _environment().get_template(template).render(values)
