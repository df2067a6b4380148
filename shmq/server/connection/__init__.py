"""Connections: what carries a session's bytes."""
