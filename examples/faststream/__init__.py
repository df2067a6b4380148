"""A small shop whose parts are handlers of FastStream."""
