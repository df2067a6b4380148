"""What applications use Redis and pools for: task frameworks, process pools, locks, caches."""
