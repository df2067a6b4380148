"""When a job runs: at the times of a cron expression in a time zone, or at an interval."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args

from shmq.api.options import check_one_of
from shmq.errors import InvalidOption, Unsupported
from shmq.lazy_imports import late_imports
from shmq.native import _clock as time
from shmq.native._core import check_seconds

#: What happens to runs whose time has passed, because no supervisor ran or the machine was
#: suspended: one message stands for all of them, or there is none.
Missed = Literal["once", "skip"]
MISSED: Final[tuple[str, ...]] = get_args(Missed)

#: The shortest interval, in seconds.
MIN_EVERY: Final = 1.0

#: From how late on a run counts as late, in milliseconds; ``missed="skip"`` skips it.
GRACE: Final = 60_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The times at which a job runs. A time is in milliseconds since 1970.

    All processes compute the same times: those of an interval are its multiples since 1970. One of
    ``cron`` and ``every`` is None. Raises :class:`~shmq.InvalidOption`, TypeError, and
    :class:`~shmq.Unsupported` for a cron expression without ``shmq[schedule]``.
    """

    #: Five fields, or six with the seconds first.
    cron: str | None = None
    #: In seconds.
    every: float | None = None
    #: An IANA name, such as ``Europe/Berlin``, for the cron expression.
    timezone: str = "UTC"
    missed: Missed = "once"

    def __post_init__(self) -> None:
        check_one_of("missed", self.missed, MISSED)
        if self.every is not None:
            check_seconds("every", self.every, MIN_EVERY)
            return
        if not isinstance(self.cron, str):
            raise TypeError(
                f"schedule={self.cron!r} must be a cron expression, not {type(self.cron).__name__}"
            )
        self._check_cron()

    def _check_cron(self) -> None:
        _load_zone(self.timezone)
        errors = (_load_cronsim().CronSimError, ValueError, TypeError, AssertionError)
        try:
            self.find_next(time.time_ns() // 1_000_000)
        except errors as error:
            raise InvalidOption(
                f"schedule={self.cron!r} is not a cron expression: {error}; it has the fields "
                f"minute, hour, day of the month, month and weekday, such as '0 6 * * *'"
            ) from error

    def find_next(self, after: int) -> int:
        """Return the first time after ``after``."""
        if self.every is not None:
            step = round(self.every * 1000)
            return (after // step + 1) * step
        # Where clocks are set back, the search starts before a time that has passed.
        return next(found for found in self._iterate(after) if found > after)

    def find_latest(self, now: int) -> int:
        """Return the last time that is not after ``now``."""
        if self.every is not None:
            step = round(self.every * 1000)
            return now // step * step
        latest = next(self._iterate(now, reverse=True))
        # Backwards, cronsim misses a time within the hour that clocks repeat.
        while (found := self.find_next(latest)) <= now:
            latest = found
        return latest

    def _iterate(self, start: int, *, reverse: bool = False) -> Iterator[int]:
        for found in _load_cronsim().CronSim(self.cron, self.local_time(start), reverse=reverse):
            yield round(found.timestamp()) * 1000

    def local_time(self, at: int) -> dt.datetime:
        """The time ``at`` in the time zone."""
        return dt.datetime.fromtimestamp(at / 1000, _load_zone(self.timezone))


def declare_schedule(
    cron: str | None, every: float | dt.timedelta | None, timezone: str | None, missed: Missed
) -> Schedule | None:
    """Return the schedule of these arguments of a worker; None: it has none.

    Raises what `Schedule` raises.
    """
    if cron is not None and every is not None:
        raise InvalidOption(f"schedule={cron!r} and every={every!r} exclude each other: drop one")
    if timezone is not None and cron is None:
        raise InvalidOption(
            f"timezone={timezone!r} needs a schedule: an interval is the same in every time zone"
        )
    if cron is None and every is None:
        if missed != "once":
            raise InvalidOption(f"missed={missed!r} needs a schedule or every")
        return None
    return Schedule(
        cron=" ".join(cron.split()) if isinstance(cron, str) else cron,
        every=None if every is None else check_seconds("every", every, MIN_EVERY),
        timezone="UTC" if timezone is None else timezone,
        missed=missed,
    )


def _load_zone(name: str) -> dt.tzinfo:
    """The time zone. Raises InvalidOption and TypeError."""
    if name == "UTC":
        return dt.UTC
    if not isinstance(name, str):
        raise TypeError(f"timezone={name!r} must be a str, not {type(name).__name__}")
    with late_imports:
        import zoneinfo  # noqa: PLC0415 - for time zones alone
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidOption(
            f"timezone={name!r} is not a time zone of this machine: use a name such as "
            f"'Europe/Berlin', or install tzdata: pip install 'shmq[schedule]'"
        ) from None


def _load_cronsim() -> Any:
    try:
        with late_imports:
            import cronsim  # noqa: PLC0415 - of the extra "schedule"
    except ImportError as error:
        raise Unsupported(
            "a cron expression takes cronsim, which is not installed: "
            "pip install 'shmq[schedule]', or use every="
        ) from error
    return cronsim
