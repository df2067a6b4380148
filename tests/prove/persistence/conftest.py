"""Queues that are written step by step, and a persistence writer."""

from __future__ import annotations

from tests.support.manual_writer import start, writer, writer_process

__all__ = ["start", "writer", "writer_process"]
