"""The brokers' usual clients in Python, a file each."""
