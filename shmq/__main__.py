"""``python -m shmq`` is the command ``shmq``."""

from shmq.cli.__main__ import main

if __name__ == "__main__":
    main()
