"""``python -m shmq.demo``."""

# Every worker imports this module again when it is spawned: nothing above the guard.
if __name__ == "__main__":
    from shmq.demo.command import main

    main(prog_name="python -m shmq.demo")
