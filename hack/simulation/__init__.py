"""Deterministic simulation: the real controller on virtual time, between models of everything else.

`python -m hack.simulation` has the commands. It finds faults; the lab confirms them. A model is small and may be wrong:
each violation is judged first, and then the product or the model is mended.
"""
