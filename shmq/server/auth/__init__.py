"""Authentication and authorization: tokens and TLS."""
