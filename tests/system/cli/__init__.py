"""The command ``shmq``, run as it is and within the test."""
