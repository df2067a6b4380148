"""Task frameworks: the same tasks and workers over shmq, Redis and RabbitMQ."""
