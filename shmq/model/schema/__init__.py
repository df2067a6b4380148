"""Schemas of the bodies of queues and the values of streams, and their versions."""
