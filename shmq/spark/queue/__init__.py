"""Queues behind ``format("shmq")``."""
