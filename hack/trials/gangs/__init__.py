"""Checks that many gangs at once keep the promises: no cluster ever beyond its quota, no deadlock, little idle
capacity.
"""
