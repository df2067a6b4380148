"""Waiting in this process: threads, semaphores and event loops."""
