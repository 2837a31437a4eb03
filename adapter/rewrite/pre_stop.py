"""Adds a preStop hook to the Ray container that drains the Ray node on every deletion of the pod.

It needs only Ray's image. It replaces no hook of a user, lengthens no grace period, and never fails or outlasts a
shutdown.
"""

from adapter import names, programs
from adapter.objects.unstructured import Raw

GRACE_SECONDS = 30
# What the hook leaves of the grace period. Ray stops its processes in about two seconds, or in four on a busy machine.
# If Ray is killed before, the head notices the loss only after a minute.
MARGIN_SECONDS = 5
# How long the hook waits for a head that does not answer. The head of a deleted RayCluster never comes back, and a
# longer wait would hold the worker's quota in vain.
SILENCE_SECONDS = 3


def with_hook(container: Raw, pod_spec: Raw) -> Raw:
    """Add the hook; another preStop hook or too short a grace period leaves the container unchanged."""
    lifecycle = container.get("lifecycle") or {}
    grace = pod_spec.get("terminationGracePeriodSeconds")
    seconds = (GRACE_SECONDS if grace is None else int(grace)) - MARGIN_SECONDS
    if lifecycle.get("preStop") or seconds <= 0:
        return container
    words = ["python3", "-c", programs.DRAIN_HOOK, str(seconds), str(SILENCE_SECONDS), names.DRAIN_MESSAGE]
    return {**container, "lifecycle": {**lifecycle, "preStop": {"exec": {"command": words}}}}
