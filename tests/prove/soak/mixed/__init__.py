"""All soaks at once, in one namespace, beside what an operator's host does to them."""

from tests.prove.soak.mixed.run import INGREDIENTS, soak

__all__ = ["INGREDIENTS", "soak"]
