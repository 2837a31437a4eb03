"""Judges whether workers in a worker cluster could join: API access, requirements, and Ray's paths between clusters.

`cli/preflight` collects the facts and runs the probe pods.
"""
