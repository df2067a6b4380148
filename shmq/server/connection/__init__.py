"""Connections: they carry the bytes of sessions."""
