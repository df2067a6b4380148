"""Worker processes that call a function for each message of a queue.

A supervisor starts them, replaces those that die, and ends with them. Any of them can be killed
safely: the queue returns the messages that a dead process had leased.
"""
