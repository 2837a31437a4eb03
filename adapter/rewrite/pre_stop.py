"""How does a Ray node leave without losing work: a preStop hook that drains it, inside its own pod.

Kubernetes runs the hook before it stops the container, whoever deletes the pod: a Kueue that preempts, a node that is
drained, we. It needs nothing but what Ray's image has, no controller and no right. It takes the place of no hook of a
user's, lengthens no grace period, and never fails or outlasts a shutdown.
"""

from adapter import names, programs
from adapter.objects.unstructured import Raw

GRACE_SECONDS = 30  # Kubernetes' own default
# What is left of the grace period when the hook ends. Ray stops its processes in about two seconds when it is told to, and in
# twice that on a busy machine; killed before, it could not say goodbye, and the head would miss it only after a minute.
MARGIN_SECONDS = 5
# How long the head may be silent before the hook gives up. Whoever deletes a whole RayCluster deletes its head with it, and
# nobody is left to take a result; waiting on would hold the worker's quota for nothing. A link that hiccups is back sooner.
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
