"""Requests and answers, one class for each payload: one side packs it, the other unpacks it."""
