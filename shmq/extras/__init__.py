"""Optional parts, each a pip extra of its name. Nothing else imports them."""
