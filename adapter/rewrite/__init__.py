"""Builds the remote pod of a manager pod, and the objects that it needs in the worker cluster.

Pure functions of object bodies. `admission` decides whether a pod may be dispatched, `worker` decides when.
"""
