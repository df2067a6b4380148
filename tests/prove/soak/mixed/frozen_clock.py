"""A program whose clocks stand still, as in tests that freeze them."""

from __future__ import annotations

import freezegun
import time_machine

SECONDS = 1.9e9


def freeze_wall_clock() -> None:
    """Freeze the time of day for the rest of the process's life."""
    time_machine.travel(SECONDS, tick=False).start()


def freeze_all_clocks() -> None:
    """Freeze the monotonic clock as well."""
    freezegun.freeze_time("2030-01-01").start()
