"""Groups of consumers of a stream of this host."""
