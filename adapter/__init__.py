"""Rayspan: spans one RayCluster over many Kubernetes clusters.

Input and output are in `shell/`, `cli/` and the `programs` that run in pods. Every other package is pure: it decides,
and performs nothing. docs/architecture.md shows the packages.
"""

__version__ = "0.1.0"
