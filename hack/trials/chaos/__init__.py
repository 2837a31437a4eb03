"""Checks that jobs survive faults: a seed draws faults that strike running jobs, and after each the books must be
right.
"""
