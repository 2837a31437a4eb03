"""What do the manager and the worker clusters look like now, as stores that follow them?"""
