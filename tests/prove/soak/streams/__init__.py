"""A stream whose appenders and members are killed at random, and a check of its history."""

from tests.prove.soak.streams.run import soak

__all__ = ["soak"]
