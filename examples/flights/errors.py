"""What ends the demonstration early."""


class DemoError(Exception):
    """The job cannot start or continue; the message is the one line that the user sees."""
