"""Numbers for Prometheus: the families, and their text."""
