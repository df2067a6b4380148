"""Tables: key-value stores of a namespace, each an SQLite database."""
