"""What the clients of this host and of a server have in common."""
