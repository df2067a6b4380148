"""Requests and answers, a class per payload: one side packs it, the other unpacks it."""
