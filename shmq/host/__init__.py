"""The host: its namespaces, the processes that shmq starts there, and what is wrong with them."""
