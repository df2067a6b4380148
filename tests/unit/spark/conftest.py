"""Skipped where there is no pyspark."""

from __future__ import annotations

from tests.support.spark_session import pytest_pycollect_makemodule

__all__ = ["pytest_pycollect_makemodule"]
