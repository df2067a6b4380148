"""The pages of the console: made by the server, readable without JavaScript."""
