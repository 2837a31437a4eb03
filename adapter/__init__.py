"""Rayspan: spans one RayCluster over many Kubernetes clusters.

Input and output live in `shell/` and `cli/`, and in the `programs` that run in pods; every other room is pure: it decides, and never
does. docs/architecture.md shows the rooms.
"""

__version__ = "0.1.0"
