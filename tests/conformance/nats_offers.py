"""What of the contract a cluster of NATS JetStream keeps, and why not the rest."""

from __future__ import annotations

from typing import Final

__all__ = ["QUICK", "offers"]

QUICK: Final = frozenset({"test_lease", "test_put_get"})


def offers(test: str) -> bool:
    """Whether the test runs over NATS."""
    return True
