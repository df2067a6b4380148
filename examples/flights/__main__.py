"""``python -m examples.flights``."""

# Every worker imports this module again when it is spawned: nothing above the guard.
if __name__ == "__main__":
    from examples.flights.command import main

    main(prog_name="python -m examples.flights")
