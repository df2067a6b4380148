"""Optional processes beside the queues. No local operation goes through them."""
