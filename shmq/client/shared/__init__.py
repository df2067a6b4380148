"""Code shared by the clients of this host and of a server."""
