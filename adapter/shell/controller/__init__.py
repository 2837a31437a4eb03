"""Runs the loop in the replica that leads: take a due key, read facts, decide, execute the actions.

What to do for a key is decided elsewhere.
"""
