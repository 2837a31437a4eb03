"""Developers' tools around Rayspan: the lab, benches, trials and their pinned programs.

The product imports none of it.
"""
