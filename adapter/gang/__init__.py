"""Decides the next actions for a gang, from its queue to its end.

The input is facts and the time. `worker` decides on single worker pods.
"""
