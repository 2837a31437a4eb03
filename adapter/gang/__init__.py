"""Decides the next actions for a gang, from its queue to its end.

`worker` decides on single worker pods.
"""
