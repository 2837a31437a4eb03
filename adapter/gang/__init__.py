"""What happens next to a gang, from the queue to its end?

Decides from facts and the time, and returns actions; the way of a single worker pod is in `worker`.
"""
