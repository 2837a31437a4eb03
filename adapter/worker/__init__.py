"""Decides the next actions for a worker pod, from its creation in the manager cluster to the end of its remote pod.

`planning` has assigned the slot before.
"""
