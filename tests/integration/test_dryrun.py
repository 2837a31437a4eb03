"""A share holds what will run, and a denial comes before quota is held. Real admission in a worker cluster adds to
the pods."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from adapter.objects.placement import PlacementState
from hack.lab.base.progress import LabError
from hack.testbed.auditlog import Written, gangs
from hack.testbed.clusters import Cluster, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import QUEUE, Stage, plain_pod, ray_cluster

_ADMISSION = "admissionregistration.k8s.io"
_SIDECAR_CPU = "500m"


@pytest.mark.long
def test_a_share_holds_what_a_limit_range_gives_its_pods(stage: Stage, running: Controller) -> None:
    """East has CPUs for two workers. Its LimitRange gives them a default of memory, of which it has enough for one:
    one goes there."""
    stage.build({"east": 2, "west": 2}, resource="memory")
    east = stage.fleet.workers["east"]
    _set_memory(stage, east, "3Gi")
    limits = [{"type": "Container", "default": {"memory": "2Gi"}, "defaultRequest": {"memory": "2Gi"}}]
    metadata = {"name": "defaults", "namespace": stage.name}
    _apply(east, {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}})
    wait(lambda: "2Gi" in _tried(east, stage), 30, "east gives it", running.tail)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "both run", running.tail)
    assert stage.where("pi") == "1 east, 1 west"
    assert stage.placement("pi")["spec"]["round"] == 1, "nothing was asked for in vain"
    assert _asked(stage, "east")["memory"] == "2Gi"
    assert _counted(stage, "east")["memory"] == "2Gi"


@pytest.mark.usefixtures("audited")
def test_a_namespace_that_refuses_the_pods_is_not_asked_for_quota(stage: Stage, running: Controller) -> None:
    """Pod Security `restricted`, which stock Ray pods do not meet: the gang goes to the other cluster, and says why."""
    stage.build({"east": 2, "west": 2})
    east = stage.fleet.workers["east"]
    east.kubectl("label", "namespace", stage.name, "pod-security.kubernetes.io/enforce=restricted")
    wait(lambda: _refuses(east, stage, "violates PodSecurity"), 30, "east refuses such pods", running.tail)
    written = Written(stage)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "both run", running.tail)
    assert stage.where("pi") == "2 west"
    said = stage.placement("pi")["spec"]["explanation"]
    assert (
        'east passed over: it denies the pods of worker group workers: pods "*" is forbidden: violates PodSecurity'
        in said
    )
    assert "ShareLost" not in stage.events("pi")
    writes = written.take()
    assert {one.cluster for one in writes} == {"west"} and gangs(writes), "east was asked for nothing that is kept"


@pytest.mark.long
def test_who_is_refused_everywhere_waits_with_the_reason_and_goes_on_when_that_is_over(
    stage: Stage, running: Controller
) -> None:
    """The namespace's level is raised and lowered again: whoever sees its labels asks anew."""
    stage.build({"east": 1})
    east = stage.fleet.workers["east"]
    east.kubectl("label", "namespace", stage.name, "pod-security.kubernetes.io/enforce=restricted")
    wait(lambda: _refuses(east, stage, "violates PodSecurity"), 30, "east refuses such pods", running.tail)
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "it waits", running.tail)
    wait(
        lambda: "violates PodSecurity" in str(stage.check("pi").get("message")), 30, "its check says why", running.tail
    )
    assert stage.leftovers() == []
    east.kubectl("label", "namespace", stage.name, "pod-security.kubernetes.io/enforce-")
    wait(lambda: stage.running(1), 120, "it runs", running.tail)


@pytest.mark.long
def test_a_share_holds_what_is_injected(stage: Stage, running: Controller) -> None:
    """A policy of east's adds a sidecar with requests of its own, so two CPUs are enough for one worker."""
    stage.build({"east": 2, "west": 2})
    _inject(stage, stage.fleet.workers["east"])
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "both run", running.tail)
    assert stage.where("pi") == "1 east, 1 west"
    assert stage.placement("pi")["spec"]["round"] == 1
    assert _counted(stage, "east")["cpu"] == "1500m"
    assert _counted(stage, "west")["cpu"] == "1"
    assert "PodExceedsShare" not in stage.events("pi")


@pytest.mark.long
def test_a_share_holds_the_overhead_of_its_runtime_class(stage: Stage, running: Controller) -> None:
    stage.build({"east": 2, "west": 2})
    _runtime_class(stage, stage.manager)
    _runtime_class(stage, stage.fleet.workers["west"])
    _runtime_class(stage, stage.fleet.workers["east"], cpu="500m")
    body = ray_cluster("pi", stage.name, {"workers": 2})
    body["spec"]["workerGroupSpecs"][0]["template"]["spec"]["runtimeClassName"] = stage.name
    stage.manager.apply(yaml.safe_dump(body))
    wait(lambda: stage.running(2), 90, "both run", running.tail)
    assert stage.where("pi") == "1 east, 1 west"
    assert stage.placement("pi")["spec"]["round"] == 1
    assert _counted(stage, "east")["cpu"] == "1500m"
    assert _podset(stage, "east")["template"]["spec"]["overhead"] == {"cpu": "500m"}


@pytest.mark.long
def test_a_copy_that_is_more_than_its_share_holds_is_told_of(stage: Stage, running: Controller) -> None:
    """The policy comes when the share stands; the worker that is replaced gets the sidecar, and runs."""
    stage.build({"east": 2})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "it runs", running.tail)
    _inject(stage, stage.fleet.workers["east"])
    stage.manager.delete("pod", stage.workers()[0]["metadata"]["name"], stage.name, wait=False)
    wait(lambda: "PodExceedsShare" in stage.events("pi"), 90, "the job says so", running.tail)
    assert "A worker in east requests more than its share there holds, cpu: 1500m instead of 1" in stage.told(
        "pi", "PodExceedsShare"
    )
    wait(lambda: stage.running(1), 60, "it runs all the same", running.tail)


@pytest.mark.long
def test_a_webhook_that_hangs_holds_up_nobody_for_long(stage: Stage, running: Controller) -> None:
    """Its webhook has no server and may fail open: the share is reserved with the template's own requests."""
    stage.build({"east": 1})
    where = {"matchLabels": {"kubernetes.io/metadata.name": stage.name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": f"{stage.name}.example.com",
        "clientConfig": {"url": "https://10.240.0.250:6443/"},
        "rules": [rule],
        "namespaceSelector": where,
        "failurePolicy": "Ignore",
        "timeoutSeconds": 3,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    _make(stage, stage.fleet.workers["east"], "ValidatingWebhookConfiguration", {"webhooks": [hook]})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: "DryRunFailed" in stage.events("pi"), 60, "the job says so", running.tail)
    assert "east: no answer within 2s" in stage.told("pi", "DryRunFailed")
    wait(lambda: stage.where("pi") == "1 east", 30, "its quota is held", running.tail)


def _podset(stage: Stage, cluster: str) -> Raw:
    (share,) = stage.remote("workloads")[cluster]
    (podset,) = share["spec"]["podSets"]
    found: Raw = podset
    return found


def _asked(stage: Stage, cluster: str) -> Raw:
    """What the first container of a share's pods asks for, as the share has it."""
    found: Raw = _podset(stage, cluster)["template"]["spec"]["containers"][0]["resources"]["requests"]
    return found


def _counted(stage: Stage, cluster: str) -> Mapping[str, Any]:
    """What the cluster's Kueue counts for a share of one worker."""
    (share,) = stage.remote("workloads")[cluster]
    (assigned,) = share["status"]["admission"]["podSetAssignments"]
    assert assigned["count"] == 1
    found: Mapping[str, Any] = assigned["resourceUsage"]
    return found


def _set_memory(stage: Stage, cluster: Cluster, amount: str) -> None:
    """`build` gives as many bytes as CPUs."""
    path = "/spec/resourceGroups/0/flavors/0/resources/1/nominalQuota"
    patch = json.dumps([{"op": "replace", "path": path, "value": amount}])
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=json", "-p", patch)


def _runtime_class(stage: Stage, cluster: Cluster, *, cpu: str = "") -> None:
    overhead = {"overhead": {"podFixed": {"cpu": cpu}}} if cpu else {}
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": stage.name}}
    _apply(cluster, {**made, "handler": "runc", **overhead})
    stage.made.append((cluster, "runtimeclasses.node.k8s.io", stage.name))


def _inject(stage: Stage, cluster: Cluster) -> None:
    """The cluster's admin has a sidecar added to every pod in the namespace of the stage; returns when that is so."""
    where = {"matchLabels": {"kubernetes.io/metadata.name": stage.name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    sidecar = (
        'Object{spec: Object.spec{containers: [Object.spec.containers{name: "mesh", image: "mesh", '
        f'resources: Object.spec.containers.resources{{requests: {{"cpu": "{_SIDECAR_CPU}"}}}}}}]}}}}'
    )
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": where},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": sidecar}}],
    }
    _make(stage, cluster, "MutatingAdmissionPolicy", {"spec": spec})
    _make(stage, cluster, "MutatingAdmissionPolicyBinding", {"spec": {"policyName": stage.name}})
    wait(lambda: "mesh" in _tried(cluster, stage), 30, f"{cluster.name} adds a sidecar")


def _make(stage: Stage, cluster: Cluster, kind: str, more: Raw) -> None:
    _apply(cluster, {"apiVersion": f"{_ADMISSION}/v1", "kind": kind, "metadata": {"name": stage.name}, **more})
    stage.made.append((cluster, f"{kind}.{_ADMISSION}", stage.name))


def _apply(cluster: Cluster, made: Raw) -> None:
    cluster.apply(yaml.safe_dump(made))


def _tried(cluster: Cluster, stage: Stage) -> str:
    probe = yaml.safe_dump(plain_pod("probe", stage.name, QUEUE))
    return cluster.kubectl("create", "--dry-run=server", "-o", "yaml", "-f", "-", input=probe)


def _refuses(cluster: Cluster, stage: Stage, why: str) -> bool:
    try:
        _tried(cluster, stage)
    except LabError as refusal:
        return why in str(refusal)
    return False
