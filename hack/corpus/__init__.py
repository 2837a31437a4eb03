"""Puts samples to real API servers and writes which of them run as they are, and with an administrator's naming.

KubeRay's own samples and test manifests, the shapes that people bring and the cases of tests/corpus become gated
RayClusters in the manager. The worker pods that KubeRay makes of them are rewritten and shown to a worker cluster in a
dry run. None of them runs. The answers are kept, so that the page can be written again without a cluster.
"""
