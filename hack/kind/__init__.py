"""Rayspan for people with Docker: three clusters made by kind, with the overlays and the tests of the lab.

All tests run on the lab, and there is no Docker where this is developed: the use of Docker and kind here is checked by
reading alone. It touches no cluster but its own three.
"""
