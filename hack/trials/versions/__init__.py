"""Tries Rayspan with pairs of versions of Kubernetes, Kueue and KubeRay, each on a lab of its own."""
