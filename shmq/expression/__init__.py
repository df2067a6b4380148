"""Expressions that choose messages and records: ``where=``."""
