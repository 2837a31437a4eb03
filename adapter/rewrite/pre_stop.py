"""Adds a preStop hook to the Ray container that drains the Ray node before the pod stops.

Kubernetes runs the hook on every deletion of the pod: a preemption by Kueue, a node drain, or our own. It needs only
Ray's image, no controller and no right. It replaces no hook of a user, lengthens no grace period, and never fails or
outlasts a shutdown.
"""

from adapter import names, programs
from adapter.objects.unstructured import Raw

GRACE_SECONDS = 30  # Kubernetes' own default
# The rest of the grace period when the hook ends. Ray stops its processes in about two seconds, and in twice that on a
# busy machine. Killed before, it does not unregister, and the head notices its loss only after a minute.
MARGIN_SECONDS = 5
# How long the head may be unreachable before the hook ends. A deleted RayCluster loses its head, too, and no process
# takes a result: to wait longer would hold the worker's quota in vain. A short network failure ends sooner.
SILENCE_SECONDS = 3


def with_hook(container: Raw, pod_spec: Raw) -> Raw:
    """Add the hook to a Ray container; one that has a preStop hook, or too short a grace period, stays the same object."""
    lifecycle = container.get("lifecycle") or {}
    grace = pod_spec.get("terminationGracePeriodSeconds")
    seconds = (GRACE_SECONDS if grace is None else int(grace)) - MARGIN_SECONDS
    if lifecycle.get("preStop") or seconds <= 0:
        return container
    words = ["python3", "-c", programs.DRAIN_HOOK, str(seconds), str(SILENCE_SECONDS), names.DRAIN_MESSAGE]
    return {**container, "lifecycle": {**lifecycle, "preStop": {"exec": {"command": words}}}}
