"""What a transport implements, and nothing else: the place to start from when adding one."""
