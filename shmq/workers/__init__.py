"""Processes that take a queue's messages and have a function handle each.

A supervisor starts them, replaces those that die, and ends with them. What makes it safe
to kill any of them is the queue: whatever a dead one held comes back.
"""
