"""Requests, watches and stores of one API server.

Knows no kind of object, and nothing of gangs.
"""
