"""Plans a gang: which worker clusters take how many of its workers, and why.

The input is candidates that were read from the stores, and the arithmetic of `quota`. `gang` decides what becomes of a
plan.
"""
