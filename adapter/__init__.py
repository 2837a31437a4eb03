"""Rayspan: spans one RayCluster over many Kubernetes clusters.

Modules of this level are pure: they decide, they never do. Input and output live in `shell/` and `cli/` alone.
"""

__version__ = "0.1.0"
