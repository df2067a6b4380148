"""The queues over TCP, beside the brokers that are used that way: ``python -m bench --tcp``."""
