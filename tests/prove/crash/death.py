"""What the runners share: how a victim is played, and that a promise was not kept."""

from __future__ import annotations

from collections.abc import Callable

#: How long all deaths of one scenario may take, in seconds.
WATCHDOG = 900

#: What prepares the victim, in its process; it returns what the victim does until it is killed.
Prepare = Callable[[], Callable[[], object]]
#: Forks a victim that is killed after a store, and returns whether it finished before.
Play = Callable[[Prepare], bool]


class Broken(Exception):
    """A promise was not kept."""


def check(true: bool, what: str) -> None:
    """Raise Broken unless it is true."""
    if not true:
        raise Broken(what)
