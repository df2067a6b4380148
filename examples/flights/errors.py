"""What ends the demonstration early."""


class DemoError(Exception):
    """The job cannot start or go on; the message is the one line that its user sees."""
