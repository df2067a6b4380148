"""Builds the pages as a site: ``python -m tools.site [FOLDER]``."""
