"""Kueue's own arithmetic: which flavors would a podset get in a tree of cohorts, and is there room for it?

Predicts what a worker cluster's Kueue will say; that Kueue decides, and nothing here overrules it.
"""
