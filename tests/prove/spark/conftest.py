"""One session of Spark for all tests of the folder."""

from __future__ import annotations

from tests.support.spark_session import checkpoint, namespace, pytest_pycollect_makemodule

__all__ = ["checkpoint", "namespace", "pytest_pycollect_makemodule"]
