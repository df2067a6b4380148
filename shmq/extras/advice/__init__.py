"""Which queue, stream or other system suits a workload, and with which options."""
