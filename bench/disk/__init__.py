"""Measures durability, with the disk itself and other brokers: ``python -m bench --disk``."""
