"""Measures queues in Spark: reading, writing, streams, and memory."""
