"""What extras for task frameworks share: the connection, the queues, the table of results."""
