"""Files of flights made up here."""

from __future__ import annotations

from tests.support.flights import flights_file

__all__ = ["flights_file"]
