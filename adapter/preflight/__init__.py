"""Could workers join from a worker cluster: is it reachable, does it have what it needs, can Ray talk across?

Judges what was looked at; the looking is in `cli/preflight`.
"""
