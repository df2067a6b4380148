"""Who may come in, and what for: tokens and TLS."""
