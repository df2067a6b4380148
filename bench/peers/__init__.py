"""What shmq is measured beside: one file a peer, one class a way of using it."""
