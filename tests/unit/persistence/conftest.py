"""Queues that are written step by step, and a persistence writer."""

from __future__ import annotations

from tests.support.manual_writer import desk, persister, start

__all__ = ["desk", "persister", "start"]
