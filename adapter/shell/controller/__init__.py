"""Runs the loop of the leading replica: take a due key, read facts, decide, execute the actions."""
