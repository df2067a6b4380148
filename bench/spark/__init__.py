"""What is measured of queues in Spark: reading, writing, streams, and memory."""
