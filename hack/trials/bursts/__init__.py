"""Measures a job that grows and shrinks while it runs: its time beside one cluster, its requests, and leftovers."""
