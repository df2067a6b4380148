"""Optional processes beside the queues. Nothing in the data path goes through them."""
