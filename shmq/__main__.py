"""``python -m shmq`` is the command ``shmq``."""

from shmq.cli.main import main

if __name__ == "__main__":
    main()
