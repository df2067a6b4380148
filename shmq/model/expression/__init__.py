"""Expressions that select messages and records: ``where=``."""
