"""Which worker clusters take how many workers of a gang, and why?

Plans from candidates that were read already, on the arithmetic of `quota`; what happens to a plan is for `gang`.
"""
