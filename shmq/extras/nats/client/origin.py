"""The streams that a stream of JetStream copies, as its server tells of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A stream of another site, or of this one, that is copied."""

    stream: str
    #: The site, or empty for this one.
    site: str
    #: How many messages the copy lacks.
    lag: int
    #: Seconds since the copy heard from it; None: never.
    silent: float | None


def origins_of(said: Mapping[str, Any]) -> tuple[Origin, ...]:
    """The origins of a stream: that of a mirror, or all that it collects."""
    origins = [said["mirror"]] if said.get("mirror") else said.get("sources") or ()
    return tuple(map(_make_origin, origins))


def _make_origin(said: Mapping[str, Any]) -> Origin:
    silent = int(said.get("active", -1))
    return Origin(
        stream=str(said["name"]),
        site=site_of(said),
        lag=int(said.get("lag", 0)),
        silent=silent / 1e9 if silent >= 0 else None,
    )


def site_of(origin: Mapping[str, Any]) -> str:
    """The site of an origin; empty for this one."""
    interface = str((origin.get("external") or {}).get("api", ""))
    return interface.removeprefix("$JS.").removesuffix(".API")
