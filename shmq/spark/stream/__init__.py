"""Streams behind ``format("shmq")``."""
