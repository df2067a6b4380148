"""What is kept of queues on disk, and how it comes back."""
