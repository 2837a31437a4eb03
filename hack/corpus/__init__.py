"""Puts samples of KubeRay to real API servers and records which ones Rayspan dispatches and which it rejects.

KubeRay's own samples and test manifests, and the cases of tests/corpus, become gated RayClusters in the manager. The
worker pods that KubeRay makes of them are rewritten and shown to a worker cluster in a dry run. None of them runs.
"""
