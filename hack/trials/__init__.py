"""Long trials of Rayspan: many gangs, many jobs, many faults.

They run by hand, or in part by the tests. Each trial draws from a seed, and ends with a verdict.
"""
