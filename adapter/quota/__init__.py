"""Kueue's arithmetic: the flavors that a podset gets in a tree of cohorts, and its capacity there.

A forecast of a worker cluster's Kueue, which makes the decision itself.
"""
