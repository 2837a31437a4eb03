"""Edits of a RayCluster that tests need beside their subject: Ray version, sharing of clusters, readiness, node loss.

Each function changes a spec in place. An untouched spec is the sample's.
"""

from hack.lab.images import rayimage
from hack.testbed.reader import Raw

# A worker cluster's whole quota for CPU (manifests/queues/worker), which two of the sample's workers share. Ray reads
# one CPU in either.
_WHOLE = "400m"
_WHOLE_BESIDE_SIDECAR = "300m"
# The head's GCS gives a node up after three failed checks, every second and with four seconds each: 15 s. Its defaults,
# 3 s, 10 s and five checks, are 65 s. The checks are few and long, since a node that is slow to answer on a busy
# machine is not lost.
_PATIENCE = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "3",
}
# KubeRay's probe of Ray 2.53 and later (kuberay: controllers/ray/common/pod.go), from the second second on and every
# second. Its own first probe comes after ten seconds and the next ones every five. A node gets the same 50 s until it
# is not ready any more.
_PROBE = {
    "httpGet": {"path": "/api/healthz", "port": 52365},
    "initialDelaySeconds": 1,
    "periodSeconds": 1,
    "timeoutSeconds": 5,
    "failureThreshold": 50,
}


def soon_ready(spec: Raw) -> None:
    """Ray's nodes are ready at once and not up to ten seconds later: for tests that are not about KubeRay's own
    probe."""
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        _ray(group)["readinessProbe"] = _PROBE


def with_ray(spec: Raw, version: str) -> None:
    """Its nodes run that version of Ray."""
    spec["rayVersion"] = version
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        _ray(group)["image"] = rayimage.reference(version)


def apart(spec: Raw) -> None:
    """No two workers in one worker cluster: each asks for all that a cluster has."""
    for group in spec["workerGroupSpecs"]:
        _ray(group)["resources"]["requests"]["cpu"] = _WHOLE


def beside_sidecars(spec: Raw) -> None:
    """Over a relay: a worker and its sidecar fill a cluster's quota, and the submitter fits beside head and routers."""
    for group in spec["workerGroupSpecs"]:
        _ray(group)["resources"]["requests"]["cpu"] = _WHOLE_BESIDE_SIDECAR
    _ray(spec["headGroupSpec"])["resources"]["requests"]["cpu"] = "100m"


def impatient(spec: Raw) -> None:
    """Ray gives up a node that is silent after 15 s: for tests that must wait for it and ask what comes then."""
    head = _ray(spec["headGroupSpec"])
    head["env"] = [*head.get("env", []), *({"name": name, "value": value} for name, value in _PATIENCE.items())]


def _ray(group: Raw) -> Raw:
    """The container of a group's template in which Ray runs."""
    found: Raw = group["template"]["spec"]["containers"][0]
    return found
