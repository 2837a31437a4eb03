"""What is noted on Kueue's queues and configuration."""

from typing import Any

import pytest

from adapter import names
from adapter.objects import queue_settings
from adapter.objects.unstructured import Raw


def queue(**spec: Any) -> Raw:
    return {"kind": "ClusterQueue", "metadata": {"name": "gpu"}, "spec": spec}


def checks(*entries: Raw) -> Raw:
    return {"admissionChecksStrategy": {"admissionChecks": list(entries)}}


GROUPS = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "plain"}, {"name": "racked"}]}]}
FLAVORS = [
    {"metadata": {"name": "racked"}, "spec": {"topologyName": "racks"}},
    {"metadata": {"name": "plain"}, "spec": {}},
    {"metadata": {"name": "other"}, "spec": {"topologyName": "blocks"}},
]


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        pytest.param({}, [], id="an empty queue"),
        pytest.param({"queueingStrategy": "BestEffortFIFO", "preemption": {"reclaimWithinCohort": "Any"},
            "admissionScope": {"admissionMode": "NoAdmissionFairSharing"}}, [], id="what plans foresee"),
        pytest.param({"queueingStrategy": "StrictFIFO"}, ["ClusterQueue gpu is StrictFIFO"], id="StrictFIFO"),
        pytest.param({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}},
            ["spec.admissionScope.admissionMode UsageBasedAdmissionFairSharing"], id="admission fair sharing"),
        pytest.param({"fairSharing": {"weight": "2"}}, ["has spec.fairSharing"], id="fair sharing"),
        pytest.param({"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}},
            ["has spec.concurrentAdmissionPolicy"], id="concurrent admission"),
        pytest.param(checks({"name": "prov"}), ["lists AdmissionCheck prov: a share is admitted when"], id="a check"),
        pytest.param({"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority",
            "borrowWithinCohort": {"policy": "LowerPriority"}}},
            ["spec.preemption.withinClusterQueue LowerOrNewerEqualPriority and borrowWithinCohort.policy"],
            id="preemption that plans do not foresee"),
        pytest.param(GROUPS, ["ResourceFlavor racked has spec.topologyName racks"], id="a topology"),
        pytest.param({"queueingStrategy": 7, "preemption": [], "admissionScope": "x", "fairSharing": 1,
            "resourceGroups": "x", "admissionChecksStrategy": []}, [], id="values of other types"),
    ],
)  # fmt: skip
def test_a_worker_queue_has_a_note_for_each_setting(spec: Raw, notes: list[str]) -> None:
    found = queue_settings.worker_queue_notes(queue(**spec), FLAVORS)
    assert len(found) == len(notes) and all(want in note for want, note in zip(notes, found, strict=True)), found


CONTROLLERS = {
    "ours": names.CONTROLLER_NAME,
    "prov": names.PROVISIONING_CONTROLLER_NAME,
    "other": "example.com/check",
}


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        pytest.param({**GROUPS, **checks({"name": "ours"})}, [], id="our check alone"),
        pytest.param({**GROUPS, **checks({"name": "ours"}, {"name": "other"})}, [], id="a check that brings no nodes"),
        pytest.param({**GROUPS, **checks({"name": "ours"}, {"name": "prov"})}, ["AdmissionCheck prov asks"],
            id="nodes for remote workers"),
        pytest.param({**GROUPS, **checks({"name": "ours", "onFlavors": ["racked"]},
            {"name": "prov", "onFlavors": ["plain"]})}, [], id="nodes for heads only"),
        pytest.param({**GROUPS, **checks({"name": "ours", "onFlavors": ["racked"]}, {"name": "prov"})},
            ["AdmissionCheck prov asks"], id="nodes for all flavors"),
        pytest.param({**checks({"name": "ours"}), "concurrentAdmissionPolicy": {"migration": {}}},
            ["remove the field"], id="concurrent admission"),
        pytest.param({**checks({"name": "prov"}), "concurrentAdmissionPolicy": {"migration": {}}}, [],
            id="a queue that is not ours"),
    ],
)  # fmt: skip
def test_a_queue_of_the_manager_has_a_note_for_each_setting(spec: Raw, notes: list[str]) -> None:
    found = queue_settings.manager_queue_notes(queue(**spec), CONTROLLERS)
    assert len(found) == len(notes) and all(want in note for want, note in zip(notes, found, strict=True)), found


def written(version: str, time: str, manager: str = "kubectl", field: str = "f:spec", **more: str) -> Raw:
    return {"apiVersion": version, "time": time, "manager": manager, "fieldsV1": {field: {}}, **more}


OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("entries", "noted"),
    [
        pytest.param([written(OLD, "2026-01-01T00:00:00Z")], True, id="the only writer"),
        pytest.param([written(OLD, "2026-01-01T00:00:00Z"), written(NEW, "2026-02-01T00:00:00Z", "argocd")], False,
            id="a later writer of the new version"),
        pytest.param([written(NEW, "2026-01-01T00:00:00Z"), written(OLD, "2026-02-01T00:00:00Z")], True,
            id="a later writer of the old version"),
        pytest.param([written(NEW, "2026-01-01T00:00:00Z"), written(OLD, "2026-01-01T00:00:00Z")], True,
            id="two writers in one second"),
        pytest.param([written(NEW, "2026-01-01T00:00:00Z"), written(OLD, "2026-02-01T00:00:00Z", subresource="status")],
            False, id="a status"),
        pytest.param([written(OLD, "2026-02-01T00:00:00Z", field="f:metadata")], False, id="no spec"),
        pytest.param("x", False, id="no list"),
        pytest.param([{"apiVersion": OLD, "fieldsV1": "x", "time": 7}], False, id="no fields"),
    ],
)  # fmt: skip
def test_a_file_of_an_older_version_is_noted(entries: Any, noted: bool) -> None:
    note = queue_settings.version_note({"kind": "ClusterQueue", "metadata": {"name": "gpu", "managedFields": entries}})
    assert bool(note) == noted
    assert not noted or note.startswith(f"ClusterQueue gpu was last written as {OLD} by kubectl: Kueue 0.20 no longer")


@pytest.mark.parametrize(
    ("config", "notes"),
    [
        pytest.param({}, [], id="no configuration"),
        pytest.param({"resources": {"quotaCheckStrategy": "BlockUndeclared"}, "waitForPodsReady": {"timeout": "5m"}},
            [], id="what plans foresee"),
        pytest.param({"resources": {"excludeResourcePrefixes": ["vpc.amazonaws.com/", "hugepages-"],
            "quotaCheckStrategy": "IgnoreUndeclared", "transformations": [{"input": "nvidia.com/mig-1g.10gb"}]}},
            ["resources.excludeResourcePrefixes vpc.amazonaws.com/, hugepages- and transformations of "
            "nvidia.com/mig-1g.10gb and quotaCheckStrategy IgnoreUndeclared: plans learn"], id="resources"),
        pytest.param({"resources": {"excludeResourcePrefixes": [f"p{n}" for n in range(99)]}},
            ["p0, p1, p2, p3 and 95 more: plans"], id="a long list"),
        pytest.param({"waitForPodsReady": {"blockAdmission": True}}, ["blockAdmission true"], id="blockAdmission"),
        pytest.param({"featureGates": {"TopologyAwareScheduling": False}}, ["ignores the topology"], id="no topology"),
        pytest.param({"resources": [], "waitForPodsReady": "x", "featureGates": 7}, [], id="values of other types"),
    ],
)  # fmt: skip
def test_a_configuration_has_a_note_for_each_setting(config: Raw, notes: list[str]) -> None:
    found = queue_settings.configuration_notes(config)
    assert len(found) == len(notes) and all(want in note for want, note in zip(notes, found, strict=True)), found


@pytest.mark.parametrize(
    ("frameworks", "faulty"),
    [
        pytest.param(["batch/job", "pod"], False, id="pods are held to their quota"),
        pytest.param(["batch/job"], True, id="pods are not managed"),
        pytest.param(None, True, id="Kueue's default list"),
    ],
)
def test_a_kueue_that_does_not_manage_pods_is_a_fault(frameworks: Any, faulty: bool) -> None:
    config = {"integrations": {"frameworks": frameworks} if frameworks else {}}
    assert bool(queue_settings.configuration_faults(config)) == faulty
