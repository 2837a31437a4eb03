"""No reader needs the trimmed fields: every reader gives the same result for the trimmed object."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.admission import job_validation
from adapter.gang import start_timeout
from adapter.gang.orphan_anchors import is_settled
from adapter.objects import job_manifest, pod_requests, trim, worker_pod
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import ShareKey
from adapter.objects.rayjob import read_job
from adapter.objects.references import Reference
from adapter.objects.reservation import anchor_references, anchor_uid, parse_reservation
from adapter.objects.unstructured import controller_uid, is_condition_true, key_of, uid_of
from adapter.objects.well_formed import malformed_reason
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import parse_workload
from adapter.quota import node_capacity, preemption
from adapter.rewrite import copied_objects, rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.shell.clusters import indexes
from adapter.shell.controller import predicates
from adapter.shell.observe.reservations import _worker_count
from adapter.worker import manager_pod_status, report, service_endpoints
from hack.corpus import golden
from hack.lab.base.paths import REPO
from tests.unit import builders, stores
from tests.unit.builders import START, make_condition, make_placement, make_pod

JOBS = [
    (path.stem, one)
    for path in sorted((REPO / "tests" / "corpus").glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text())
    if one and one.get("kind") in names.RAY_KINDS
]


def test_the_corpus_has_jobs() -> None:
    assert len(JOBS) > 10


@pytest.mark.parametrize("job", [one for _, one in JOBS], ids=[name for name, _ in JOBS])
def test_a_job_without_its_templates_is_validated_the_same(job: dict[str, Any]) -> None:
    kind = job["kind"]
    trimmed = read_job(kind, (trim.ray_job if kind == "RayJob" else trim.ray_cluster)(job))
    whole = read_job(kind, job)
    assert job_validation.job_problem(trimmed) == job_validation.job_problem(whole)
    assert job_validation.waits_for_all(trimmed) == job_validation.waits_for_all(whole)
    groups = {"workers", "small", "large"}
    assert trimmed.cluster.desired_workers(groups) == whole.cluster.desired_workers(groups)


def test_long_fields_of_a_job_are_trimmed() -> None:
    job = stores.make_ray_job(entrypoint="python x.py", runtimeEnvYAML="pip: []", submitterPodTemplate={"spec": {}})
    job["metadata"]["managedFields"] = [{}]
    left = trim.ray_job(job)
    assert "containers" in str(job) and "containers" not in str(left)
    assert set(left["spec"]) == {"shutdownAfterJobFinishes", "rayClusterSpec"}
    assert left["metadata"] == {key: value for key, value in job["metadata"].items() if key != "managedFields"}
    assert "containers" not in str(trim.ray_cluster(stores.make_ray_job(kind="RayCluster")))


@pytest.mark.parametrize("spec", [None, {"rayClusterSpec": 5}, {"rayClusterSpec": {"workerGroupSpecs": [5]}}])
def test_a_malformed_job_stays_malformed(spec: Any) -> None:
    odd = {"metadata": {"name": "a"}, "spec": spec}
    assert trim.ray_job(odd) == odd


NODE = {
    "apiVersion": "v1",
    "metadata": {"name": "n", "uid": "u", "labels": {"zone": "a"}, "annotations": {"long": "x"}, "managedFields": [{}]},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "providerID": "p"},
    "status": {
        "images": [{"names": ["x"]}],
        "allocatable": {"cpu": "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def test_a_node_without_its_images_is_read_the_same() -> None:
    left = trim.node(NODE)
    kept, whole = node_capacity.parse_nodes([left]), node_capacity.parse_nodes([NODE])
    assert (kept.by_label, kept.by_taint, kept.by_allocatable) == (whole.by_label, whole.by_taint, whole.by_allocatable)
    assert kept.count == whole.count == 1
    assert "images" not in left["status"] and "annotations" not in left["metadata"]
    assert left["metadata"]["uid"] == "u"


def test_the_last_applied_annotation_is_trimmed() -> None:
    noted = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "ours": "kept"}
    assert trim.without_managed_fields({"metadata": {"name": "a", "annotations": noted}})["metadata"][
        "annotations"
    ] == {"ours": "kept"}
    plain = {"metadata": {"name": "a", "annotations": {"ours": "kept"}}}
    assert trim.without_managed_fields(plain) is plain


def test_a_namespace_keeps_its_labels() -> None:
    left = trim.without_annotations({"metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"long": "x"}}})
    assert left["metadata"] == {"name": "a", "labels": {"x": "y"}}


# --- what Kueue and the worker clusters write ------------------------------------------------------------------------

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "train-abc-worker-0", "uid": "copy-of-it"}
TEMPLATE = {
    "metadata": {"annotations": {names.ZONE_ANNOTATION: "a"}},
    **stores.make_template("2", nodeSelector={"x": "y"}),
}
TOPOLOGY = {"levels": ["kubernetes.io/hostname"], "domains": [{"values": [f"node-{n}"], "count": 1} for n in range(50)]}
KUEUES = {
    "reclaimablePods": [{"name": "workers", "count": 1}],
    "requeueState": {"count": 3, "requeueAt": builders.stamp(9)},
    "resourceRequests": [{"name": "workers", "resources": {"cpu": "8"}}],
    "schedulingStats": {"evictions": [{"reason": "Preempted", "count": 1}]},
    "accumulatedPastExecutionTimeSeconds": 90,
}


def _workload(raw: dict[str, Any], flavors: dict[str, str], *owners: dict[str, Any]) -> dict[str, Any]:
    """A Workload as a busy Kueue writes it, with all the fields that no reader here needs."""
    given = {"name": "workers", "count": 4, "flavors": flavors, "resourceUsage": {"cpu": "8"}}
    raw["metadata"] |= {
        "managedFields": [{"manager": "kueue"}],
        "resourceVersion": "5",
        "creationTimestamp": builders.stamp(),
        "ownerReferences": [*raw["metadata"]["ownerReferences"], *owners],
    }
    raw["spec"] |= {"priority": 7, "priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "high"}}
    raw["spec"]["podSets"] = [
        {"name": "workers", "count": 4, "template": TEMPLATE, "topologyRequest": {"required": "rack"}}
    ]
    raw["status"] |= KUEUES | {
        "admission": {
            "clusterQueue": "team-a",
            "podSetAssignments": [given | {"topologyAssignment": TOPOLOGY}],
        }
    }
    return raw


WORKLOADS = {
    "waits": builders.make_workload(reserved=None),
    "holds quota": builders.make_workload(message="all is well"),
    "runs": builders.make_workload(check=names.CHECK_READY, conditions=[names.ADMITTED]),
    "evicted": builders.make_workload(conditions=[names.EVICTED]),
    "steps aside": builders.make_workload(active=False, yielded=5, yields=2),
    "over": builders.make_workload(conditions=[names.FINISHED], deleting=True),
}
OF_WORKLOADS: list[Callable[[Any], object]] = [
    key_of, uid_of, controller_uid, malformed_reason, parse_workload, predicates.planning_position,
    lambda raw: job_manifest.observed_priority("high", [raw]),
    lambda raw: (raw.get("status") or {}).get("admissionChecks"),
    lambda raw: is_condition_true(raw, names.QUOTA_RESERVED),
]  # fmt: skip


@pytest.mark.parametrize("read", range(len(OF_WORKLOADS)))
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_trimmed_workload_is_read_the_same(name: str, read: int) -> None:
    whole = _workload(WORKLOADS[name], {"cpu": "remote"})
    assert OF_WORKLOADS[read](trim.manager_workload(whole)) == OF_WORKLOADS[read](whole)


def test_kueues_own_fields_are_trimmed() -> None:
    left = trim.manager_workload(_workload(builders.make_workload(), {"cpu": "remote"}))
    assert set(left["status"]) == {"conditions", "admission", "admissionChecks", "requeueState"}
    assert "node-" not in str(left) and "managedFields" not in left["metadata"]


PLACE = make_placement(builders.make_workload())
SHARES = {
    "waits": builders.make_reservation(PLACE, admitted=False, message="no quota", counts={"workers": 4}),
    "admitted": builders.make_reservation(PLACE, counts={"workers": 4}),
    "evicted": builders.make_reservation(PLACE, conditions=[names.EVICTED], counts={"workers": 4}),
    "over": builders.make_reservation(PLACE, conditions=[names.FINISHED], active=False, deleting=True),
    "checked": builders.make_reservation(
        PLACE, admitted=False, checks=[{"name": "a", "state": "Retry", "message": "no", "podSetUpdates": [{}]}]
    ),
}
QUEUE = builders.make_cluster_queue(8, preemption={"withinClusterQueue": "LowerPriority"})
QUEUE["status"] = {"flavorsReservation": [{"name": "any", "resources": [{"name": "cpu", "total": "8"}]}]}
OF_SHARES: list[Callable[[Any], object]] = [
    key_of, uid_of, malformed_reason, lambda raw: parse_reservation("east", raw), anchor_references, anchor_uid,
    _worker_count, indexes.by_reserved_workload,
    lambda raw: predicates.share_for_pods("east", raw), lambda raw: predicates.share_for_gang("east", raw),
    lambda raw: preemption.simulate_removal([QUEUE], [raw], 9, "team-a"),
    lambda raw: preemption.simulate_removal([QUEUE], [raw], 7, "team-a"),
]  # fmt: skip


@pytest.mark.parametrize("read", range(len(OF_SHARES)))
@pytest.mark.parametrize("name", SHARES)
def test_a_trimmed_reservation_is_read_the_same(name: str, read: int) -> None:
    whole = _workload(SHARES[name], {"cpu": "any"}, OWNER)
    assert OF_SHARES[read](trim.group_workload(whole)) == OF_SHARES[read](whole)


def test_the_pods_among_a_reservations_owners_are_trimmed() -> None:
    """Kueue makes each pod an owner, and rewrites the whole list for each."""
    whole = _workload(builders.make_reservation(PLACE), {}, *({**OWNER, "uid": str(n)} for n in range(5000)))
    left = trim.group_workload(whole)
    assert [owner["kind"] for owner in left["metadata"]["ownerReferences"]] == ["ConfigMap"]
    assert len(whole["metadata"]["ownerReferences"]) == 5001 and "node-" not in str(left)


def test_what_a_check_adds_to_pods_is_trimmed() -> None:
    """Kueue there writes it into the pods."""
    left = trim.group_workload(_workload(SHARES["checked"], {}))
    assert left["status"]["admissionChecks"] == [{"name": "a", "state": "Retry", "message": "no"}]


LOCAL = make_pod(placement="train", slot="east/1/workers/0", dispatched=True)
LOCAL["spec"]["containers"][0]["restartPolicy"] = "Never"
READY, STARTS = {"running": {"startedAt": builders.stamp()}}, {"waiting": {"reason": "PodInitializing"}}
STATUSES: dict[str, dict[str, Any]] = {
    "new": {},
    "finds no node": {"phase": "Pending", "conditions": [make_condition("PodScheduled", False, message="0/3 nodes")]},
    "pulls": {
        "phase": "Pending",
        "startTime": builders.stamp(),
        "conditions": [make_condition("PodScheduled"), make_condition("Ready", False)],
        "initContainerStatuses": [{"name": "wait", "state": STARTS, "allocatedResourcesStatus": [{"name": "gpu"}]}],
        "containerStatuses": [{"name": "ray-worker",
                               "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}],
    },
    "runs": {
        "phase": "Running", "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}], "hostIP": "10.0.0.1",
        "qosClass": "Burstable",
        "startTime": builders.stamp(), "conditions": [make_condition("PodScheduled"),
            make_condition("Ready", since=30)],
        "containerStatuses": [{"name": "ray-worker", "state": READY, "ready": True}],
    },
    "failed": {
        "phase": "Failed", "reason": "Evicted", "message": "the node was low on memory",
        "conditions": [make_condition("DisruptionTarget", message="preempted")],
        "containerStatuses": [{"name": "ray-worker",
                               "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}],
    },
}  # fmt: skip
LATER = START + timedelta(hours=1)
HEAD, MOVED = HeadAddress.from_pod(LOCAL, "10.9.9.9"), Reference("Secret", "s")
HELD = parse_reservation("east", {"metadata": {"name": "s"}, "spec": {"podSets": [
    {"name": "workers", "count": 1, "template": stores.make_template("10m")},
]}})  # fmt: skip
OF_COPIES: list[Callable[[Any], object]] = [
    key_of, uid_of, malformed_reason, anchor_uid, worker_pod.slot_of, worker_pod.is_deleting, worker_pod.has_ended,
    lambda raw: worker_pod.is_overdue_for_deletion(raw, LATER),
    indexes.by_placement, predicates.worker_pod_state, start_timeout.has_started, start_timeout.stuck_reason,
    lambda raw: start_timeout._starting_since(LOCAL, raw, START, ClockOffsets()),
    lambda raw: (raw.get("spec") or {}).get("nodeName"), lambda raw: manager_pod_status.trouble_message(raw, "east"),
    lambda raw: manager_pod_status.status_patch(LOCAL, raw, "east"),
    lambda raw: report.mirror_status(None, LOCAL, raw, "east", START),
    lambda raw: report.fail_if_stuck(LOCAL, raw, "east", LATER, LATER),
    lambda raw: report.requeue_while_ending(raw, START),
    lambda raw: HEAD.stale_address(raw, mirrored=True), lambda raw: HEAD.stale_address(raw, mirrored=False),
    lambda raw: copied_objects.build_copy(MOVED, {"data": {}}, raw, anchor_references(raw)),
    lambda raw: pod_requests.pod_requests(raw["spec"]),
    lambda raw: report.excess_message(raw, HELD, Slot(ShareKey("east", 1), "workers", 0), "east"),
]  # fmt: skip
COPIES = sorted((REPO / "tests/unit/rewrite/golden").glob("*/*.out.yaml"))


@pytest.mark.parametrize("read", range(len(OF_COPIES)))
@pytest.mark.parametrize("status", STATUSES)
def test_a_trimmed_remote_pod_is_read_the_same(status: str, read: int) -> None:
    assert COPIES
    for path in COPIES:
        whole = golden.read(path)
        whole["metadata"] |= {
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": builders.stamp(),
            "managedFields": [{}],
        }
        whole["spec"]["nodeName"], whole["status"] = "node-1", STATUSES[status]
        if status == "failed":
            whole["metadata"]["deletionTimestamp"] = builders.stamp(9)
        assert OF_COPIES[read](trim.remote_pod(whole)) == OF_COPIES[read](whole), path


def test_our_own_fields_of_a_remote_pod_are_trimmed() -> None:
    whole = yaml.safe_load(COPIES[0].read_text())
    whole["metadata"]["annotations"]["tools.example.com/trace"] = "x" * 1000
    whole["metadata"]["annotations"][names.PROVISIONING_REQUEST_ANNOTATION] = "request"
    left = trim.remote_pod(whole)
    assert not {"command", "env", "image", "volumes"} & _fields(left["spec"])
    assert not any(key.startswith("tools") for key in left["metadata"]["annotations"])
    assert left["metadata"]["annotations"][names.SLOT_ANNOTATION]
    assert left["metadata"]["annotations"][names.PROVISIONING_REQUEST_ANNOTATION] == "request"


def _fields(found: Any) -> set[str]:
    """The names of all fields, at any depth."""
    inside = found if isinstance(found, list) else found.values() if isinstance(found, dict) else ()
    return set(found if isinstance(found, dict) else ()).union(*map(_fields, inside))


def test_a_trimmed_remote_pod_still_shows_that_it_exceeds_its_share() -> None:
    """By a sidecar, an init container that keeps running, or the overhead of a runtime class."""
    cpu = {"resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [cpu, cpu], "initContainers": [{**cpu, "restartPolicy": "Always"}], "overhead": {"cpu": "1"}}
    left = trim.remote_pod({"metadata": {"name": "a"}, "spec": spec})
    assert pod_requests.pod_requests(left["spec"])["cpu"] == 4000


# --- a manager pod whose remote pod was observed ---------------------------------------------------------------------

RUNS = STATUSES["runs"]
TOLD = make_condition(names.DISPATCHED_CONDITION)
SERVE = builders.make_service("serve")
OF_WORKERS: list[Callable[[Any], object]] = [
    key_of, uid_of, controller_uid, malformed_reason, indexes.by_placement, indexes.by_ray_cluster, worker_pod.slot_of,
    worker_pod.worker_group_of,
    worker_pod.is_deleting, worker_pod.has_ended, worker_pod.is_dispatched, worker_pod.has_working_ray_node,
    worker_pod.unlocked_reason, worker_pod.waits_for_quota,
    predicates.worker_pod_state, predicates.endpoint_state, predicates.backend_state, predicates.head_address,
    lambda raw: worker_pod.may_get_slot(raw, {}), lambda raw: HeadAddress.from_pod(raw, "10.9.9.9"),
    lambda raw: HeadAddress.from_pod(raw, "").service_key,
    rewriter.referenced_objects, lambda raw: service_endpoints._target_port({"targetPort": "metrics"}, "TCP", raw),
    lambda raw: manager_pod_status.failed_patch(raw, reason="a", message="b", now=builders.stamp()),
    lambda raw: manager_pod_status.unknown_patch(raw, "east", "is unreachable", builders.stamp()),
    lambda raw: [manager_pod_status.status_patch(raw, {"metadata": {}, "status": status},
        "east") for status in STATUSES.values()],
    lambda raw: report.fail_missing(raw, "east", START) and None,
]  # fmt: skip
WORKERS = sorted((REPO / "tests/unit/rewrite/golden").glob("*/*.in.yaml"))


@pytest.mark.parametrize("read", range(len(OF_WORKERS)))
@pytest.mark.parametrize("status", STATUSES)
def test_a_trimmed_manager_pod_is_read_the_same(status: str, read: int) -> None:
    assert len(WORKERS) > 10
    said = STATUSES[status]
    for path in WORKERS:
        whole = golden.read(path) | {"status": {**said, "conditions": [*said.get("conditions", ()), TOLD]}}
        assert OF_WORKERS[read](trim.manager_pod(whole)) == OF_WORKERS[read](whole), path


def test_a_manager_pod_without_its_remote_pods_source_fields() -> None:
    whole = golden.read(WORKERS[0])
    assert trim.manager_pod(whole)["spec"] == whole["spec"], "it is yet to be made"
    whole["status"]["conditions"].append(TOLD)
    assert not {"command", "args", "image", "livenessProbe", "affinity"} & _fields(trim.manager_pod(whole)["spec"])


ANCHOR = {
    "metadata": builders.make_meta(
        "train-1",
        creationTimestamp=builders.stamp(),
        labels={names.CLUSTER_LABEL: "east"},
        annotations={names.WORKLOAD_ANNOTATION: "rayjob-train"},
    ),
    "data": {"large": "x" * 1000},
}


def test_a_trimmed_anchor_keeps_its_metadata() -> None:
    left = trim.metadata_only(ANCHOR)
    assert "data" not in left
    for read in (key_of, uid_of, indexes.by_reserved_workload, lambda raw: is_settled(raw, LATER)):
        assert read(left) == read(ANCHOR)
    assert trim.metadata_only(5) == 5 and trim.metadata_only({}) == {"metadata": {}}


@pytest.mark.parametrize("slims", [trim.manager_workload, trim.group_workload, trim.remote_pod, trim.manager_pod])
@pytest.mark.parametrize(
    "part",
    [
        {"spec": None, "status": None},
        {"spec": {"podSets": 5}, "status": {"admission": 5}},
        {"spec": {"podSets": [5]}, "status": {"admission": {"podSetAssignments": 5}}},
        {"status": {"admission": {"podSetAssignments": [5]}}},
        {"status": {"admissionChecks": 5}},
        {"status": {"admissionChecks": [5, {"name": 5, "state": 5, "message": 5}]}},
    ],
)
def test_malformed_objects_are_trimmed_without_an_error(slims: Callable[[Any], Any], part: dict[str, Any]) -> None:
    whole = {"metadata": {"name": "a", "ownerReferences": None, "annotations": None}, **part}
    left = slims(whole)
    for read in (parse_workload, lambda raw: parse_reservation("east", raw)):
        assert slims is trim.remote_pod or _outcome(read, left) == _outcome(read, whole)


def _outcome(read: Callable[[Any], object], raw: Any) -> object:
    try:
        return read(raw)
    except (AttributeError, TypeError) as error:
        return type(error)
