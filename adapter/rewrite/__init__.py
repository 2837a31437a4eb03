"""Builds the remote pod of a manager pod, and the objects that it needs in the worker cluster, as pure functions."""
