"""The console as a server: the application, and the process that runs it."""
