"""The server held against the wire protocol from outside, one sentence of it a test."""
