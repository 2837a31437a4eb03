"""One API server: how is it asked, followed and remembered?

Knows no kind of object, and nothing of gangs.
"""
