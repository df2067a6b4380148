"""A namespace: its names, its processes, and what is made and removed in it."""
