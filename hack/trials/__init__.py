"""What does Rayspan do over long: many gangs, many jobs, many faults?

Run by hand, or in part by the tests; each trial draws from a seed, and ends with a verdict.
"""
