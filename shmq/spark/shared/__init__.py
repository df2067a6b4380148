"""What the formats have in common: addresses, options, columns."""
