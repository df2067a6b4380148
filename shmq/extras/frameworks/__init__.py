"""shmq under the interfaces of other libraries: each folder is an extra of its own."""
