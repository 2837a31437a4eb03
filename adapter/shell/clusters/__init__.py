"""The manager cluster and the worker clusters as caches."""
