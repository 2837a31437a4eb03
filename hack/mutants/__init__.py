"""Breaks of the product, kept as patches: each must turn a named test red.

A patch is applied to a copy of the checkout, never to the checkout itself. A patch names its tests as text; they are
not known here.
"""
