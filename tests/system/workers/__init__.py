"""The worker processes, started as their users start them."""
