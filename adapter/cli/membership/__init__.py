"""`join`, `rotate` and `leave`: their requests to both clusters, and their output.

`adapter.membership` defines the objects and the checks.
"""
