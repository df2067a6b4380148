"""Code that the formats share: addresses, options, columns."""
