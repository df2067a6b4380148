"""A namespace: its names, its processes, and the creation and removal of its files."""
