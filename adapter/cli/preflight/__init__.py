"""What does `kubectl rayspan preflight` try in the clusters, and how is that told?

The looking and the probe pods; what is to be thought of what they saw is for `preflight`.
"""
