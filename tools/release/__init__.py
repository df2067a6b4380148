"""Builds what is published, twice, and tries it in clean environments: see ``__main__``."""
