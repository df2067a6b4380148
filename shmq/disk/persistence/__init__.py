"""Persistence: the writer of durable queues and streams, and recovery from its files."""
