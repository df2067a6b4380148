"""``python -m examples.flights``."""

# Every spawned worker imports this module again, so nothing may be above the guard.
if __name__ == "__main__":
    from examples.flights.command import main

    main(prog_name="python -m examples.flights")
