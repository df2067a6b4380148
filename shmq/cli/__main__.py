"""``python -m shmq.cli`` is the command ``shmq``."""

from shmq.__main__ import main

if __name__ == "__main__":
    main()
