"""A namespace of the test's own, in memory and over TCP."""

from tests.support.frameworks import namespace, target

__all__ = ["namespace", "target"]
