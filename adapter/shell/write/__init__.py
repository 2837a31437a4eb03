"""How is an action done: which requests, with which preconditions?

Does what it is told, and does not look again.
"""
