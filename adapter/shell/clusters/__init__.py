"""The manager cluster and the worker clusters as caches.

They say which clusters there are, and since when one is unreachable. What a loss means for a gang or a worker is
decided elsewhere.
"""
