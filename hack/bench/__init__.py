"""Measures what Rayspan costs.

Each bench compares with a baseline in the same run: only such ratios carry over to other machines.
"""
