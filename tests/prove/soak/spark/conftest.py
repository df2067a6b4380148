"""Skipped where there is no pyspark, and in a namespace that Spark's workers stay in."""

from __future__ import annotations

from tests.support.spark_session import namespace, pytest_pycollect_makemodule

__all__ = ["namespace", "pytest_pycollect_makemodule"]
