"""Plays a worker cluster's autoscaler, which gives Kueue's admission check its nodes by ProvisioningRequests.

No autoscaler runs there. A test answers the ProvisioningRequests of Kueue by their conditions.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from adapter import names
from hack.lab.build import tools
from hack.testbed import kueueconfig
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage

KIND = "provisioningrequests.autoscaling.x-k8s.io"
CLASS = "example.rayspan.dev"
_CRD = "config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml"
_SINCE = "2026-01-01T00:00:00Z"


@contextmanager
def known(cluster: Cluster) -> Iterator[None]:
    """Within, Kueue there knows ProvisioningRequests, as where a cluster autoscaler is installed.

    Kueue looks for the CRD when it starts (kueue:cmd/kueue/main.go).
    """
    path = tools.module_dir("autoscaler") / _CRD
    cluster.kubectl("apply", "--server-side", "-f", path)
    try:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=30s")
        kueueconfig.restart([cluster])
        yield
    finally:
        cluster.kubectl("delete", "-f", path)
        kueueconfig.restart([cluster])


def add_check(stage: Stage, name: str, *, retries: int) -> str:
    """Give a worker cluster's queue Kueue's check of ProvisioningRequests; returns the check's name."""
    cluster, check = stage.fleet.workers[name], f"{stage.name}-nodes"
    strategy = {"backoffLimitCount": retries, "backoffBaseSeconds": 1}
    stage.add(cluster, _CONFIG_KIND, {"spec": {"provisioningClassName": CLASS, "retryStrategy": strategy}}, check)
    parameters = {"apiGroup": names.KUEUE_DOMAIN, "kind": _CONFIG_KIND, "name": check}
    spec = {"controllerName": names.PROVISIONING_CONTROLLER_NAME, "parameters": parameters}
    stage.add(cluster, "AdmissionCheck", {"spec": spec}, check)
    kind = f"admissionchecks.{names.KUEUE_DOMAIN}"
    wait(lambda: _is_active(cluster.get(kind, check)), 30, f"{check} is active")
    checks = json.dumps({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}}})
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", checks)
    wait(lambda: _is_active(cluster.get("clusterqueues", stage.name)), 30, "the queue with the check is active")
    return check


def requests(cluster: Cluster, namespace: str) -> list[Raw]:
    """The ProvisioningRequests of Kueue."""
    return cluster.items(KIND, namespace)


def answer(cluster: Cluster, request: Raw, outcome: str, message: str) -> None:
    """Set the condition of that name, such as Provisioned or Failed, as the autoscaler does."""
    given = {"type": outcome, "status": "True", "reason": outcome, "message": message, "lastTransitionTime": _SINCE}
    conditions = [*((request.get("status") or {}).get("conditions") or ()), given]
    patch = json.dumps({"status": {"conditions": conditions}})
    name, namespace = request["metadata"]["name"], request["metadata"]["namespace"]
    which = ("-n", namespace, "patch", KIND, name, "--subresource=status", "--type=merge", "-p", patch)
    cluster.kubectl(*which)


_CONFIG_KIND = "ProvisioningRequestConfig"


def _is_active(raw: Raw) -> bool:
    return condition(raw, names.ACTIVE).get("status") == "True"
