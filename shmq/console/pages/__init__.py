"""The pages, which a browser can read without JavaScript."""
