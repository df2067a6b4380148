"""Brokers of task frameworks over shmq's queues."""
