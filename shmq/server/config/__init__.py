"""What configures a server: settings and limits, tokens, TLS."""
