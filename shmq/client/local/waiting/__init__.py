"""Waiting in this process: threads, bells and event loops."""
