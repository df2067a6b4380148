"""What the console adds to the command ``shmq``."""
