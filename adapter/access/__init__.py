"""Decides whether a request may reach a worker's containers, and which request goes to the worker cluster.

Whether a user may have a grant is decided by the API server: a policy checks the rights of the grant's creator.
"""
