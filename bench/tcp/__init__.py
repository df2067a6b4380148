"""Measures queues over TCP, with other brokers as peers: ``python -m bench --tcp``."""
