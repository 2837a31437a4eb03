"""Rayspan for people with Docker: three clusters made by kind, with the overlays and the tests of the lab.

It touches no clusters but its own three, and uses public commands of docker, kind and kubectl.
"""
