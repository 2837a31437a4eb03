"""What do the manager and the worker clusters look like now, as stores that follow them?

Says which clusters there are and since when one is silent; what a loss means for a gang or a worker is decided elsewhere.
"""
