"""Typed records of API objects: Workloads, Placements, shares, worker pods, RayJobs and administrators' objects.

The readers decide nothing. An absent field is empty, and a malformed one is a fault of its object.
"""
