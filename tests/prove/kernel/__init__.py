"""The kernel alone: shmq without its extras."""
