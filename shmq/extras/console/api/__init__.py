"""The HTTP API: each operation is a row of one table, from which routes and OpenAPI are made."""
