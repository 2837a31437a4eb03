"""Which samples of KubeRay does Rayspan dispatch, and which does it refuse? All of them, put to real API servers.

KubeRay's own samples and test manifests, and the cases of tests/corpus, become RayClusters in the manager, held by gates; the
worker pods that KubeRay makes of them are rewritten and shown to a worker cluster in a dry run. Nothing of them ever runs.
"""
