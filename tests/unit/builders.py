"""Raw objects as an API server gives them, for tests: each builder sets only fields that a reader depends on.

Nothing here is computed by adapter/, except a Workload's attempt.
"""

import base64
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import parse_workload
from adapter.rewrite.target import Target

Groups = Mapping[str, int]  # worker group -> workers

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHECK, QUEUE, NAMESPACE, JOB = "rayspan", "team-a", "demo", "train"
WORKERS: Groups = {"workers": 4}


def at(seconds: float) -> datetime:
    """So many seconds after START."""
    return START + timedelta(seconds=seconds)


def stamp(seconds: float = 0) -> str:
    """So many seconds after START, as an API timestamp."""
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


EVICTED_BY_CHECK = "AdmissionCheck"  # the reason of Kueue's eviction for a check that answers Retry


def make_condition(kind: str, status: bool = True, *, since: float = 0, **more: Any) -> Raw:
    return {"type": kind, "status": str(status), "lastTransitionTime": stamp(since), **more}


def make_meta(name: str, *, uid: str = "", namespace: str = NAMESPACE, deleting: bool = False, **more: Any) -> Raw:
    deletion = {"deletionTimestamp": stamp()} if deleting else {}
    return {"name": name, "namespace": namespace, "uid": uid or f"uid-of-{name}", **deletion, **more}


# --- the manager's objects -------------------------------------------------------------------------------------------


def make_workload(
    *,
    name: str = "rayjob-train",
    groups: Groups = WORKERS,
    reserved: float | None = 0,
    conditions: Iterable[str] = (),
    active: bool = True,
    deleting: bool = False,
    check: str = names.CHECK_PENDING,
    message: str = "",
    yields: int = 0,
    yielded: float | None = None,
    version: int = 1,
    owner: str = "RayJob",
    checks: Iterable[str] = (CHECK,),
) -> Raw:
    """A Workload that holds quota since `reserved` (None: it does not); `conditions` are further true ones."""
    podsets = [{"name": n, "count": c, "template": {"spec": {"containers": []}}} for n, c in groups.items()]
    held = [make_condition(names.QUOTA_RESERVED, since=reserved)] if reserved is not None else []
    job = {"apiVersion": "ray.io/v1", "kind": owner, "name": JOB, "uid": "uid-of-job", "controller": True}
    away = {} if yielded is None else {names.DEACTIVATED_AT_ANNOTATION: stamp(yielded)}
    annotations = {**away, **({names.DEACTIVATIONS_ANNOTATION: str(yields)} if yields else {})}
    entry = {"state": check, "message": message}
    return {
        "metadata": make_meta(
            name,
            resourceVersion=str(version),
            deleting=deleting,
            ownerReferences=[job] if owner else [],
            annotations=annotations,
        ),
        "spec": {"queueName": QUEUE, "active": active, "podSets": [{"name": "head", "count": 1}, *podsets]},
        "status": {
            "conditions": [*held, *(make_condition(kind) for kind in conditions)],
            "admission": {
                "clusterQueue": "team-a",
                "podSetAssignments": [{"name": n, "flavors": {"cpu": "remote"}, "count": c} for n, c in groups.items()],
            },
            "admissionChecks": [{"name": one, **entry} for one in checks],
        },
    }


def make_placement(
    workload: Raw,
    *,
    shares: Mapping[str, Groups] | None = None,
    attempt: str = "",
    round: int = 1,
    given_up: int = 0,
    planned: float = 0,
    excluded: Mapping[str, float] | None = None,
    withdrawn: int = 0,
    blocked: Mapping[str, float] | None = None,
    explanation: str = "2 of 4 workers to east, 2 of 4 workers to west.",
    **status: Any,
) -> Raw:
    """The Placement of a Workload's attempt; `excluded` and `blocked` are cluster -> seconds after START."""
    attempt = attempt or parse_workload(workload).attempt
    wanted = sum(p["count"] for p in workload["spec"]["podSets"] if p["name"] != names.HEAD)
    spread: Mapping[str, Groups] = {"east": {"workers": 2}, "west": {"workers": 2}} if shares is None else shares
    entries = [
        {"cluster": cluster, "groups": [{"name": n, "role": f"role-{n}", "count": c} for n, c in groups.items()]}
        for cluster, groups in spread.items()
    ]
    if withdrawn or blocked:
        status |= {"withdrawnRound": withdrawn, "blocked": make_exclusions(blocked or {})}
    return {
        "metadata": make_meta(f"{JOB}-{attempt}"),
        "spec": {
            "workload": {"name": workload["metadata"]["name"], "uid": workload["metadata"]["uid"]},
            "attempt": attempt,
            "round": round,
            "givenUp": given_up,
            "plannedAt": stamp(planned),
            "wanted": wanted,
            "shares": entries,
            "excluded": make_exclusions(excluded or {}),
            "explanation": explanation,
        },
        **({"status": status} if status else {}),
    }


def make_exclusions(until: Mapping[str, float]) -> list[Raw]:
    return [{"cluster": c, "until": stamp(when), "reason": "did not admit in time"} for c, when in until.items()]


def make_ray_cluster(*, name: str = "train-abc", owner: str = "uid-of-job") -> Raw:
    """The RayCluster that KubeRay made for the job."""
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": JOB, "uid": owner, "controller": True}
    return {"metadata": make_meta(name, ownerReferences=[job]), "spec": {}}


def make_pod(
    name: str = "train-abc-worker-0",
    *,
    uid: str = "",
    placement: str = "",
    group: str = "workers",
    slot: Slot | str = "",
    index: str = "",
    listed: str = "",
    dispatched: bool = False,
    phase: str = "Pending",
    deleting: bool = False,
) -> Raw:
    """A gated worker pod in the manager; `index` and `listed` are its number and the slots that its template lists."""
    labels = {names.RAY_GCS_GROUP_LABEL: group, names.RAY_GCS_CLUSTER_LABEL: "train-abc"}
    labels |= {names.RAY_REPLICA_INDEX_LABEL: index} if index else {}
    labels |= {names.PLACEMENT_LABEL: placement} if placement else {}
    ray_cluster = {"kind": "RayCluster", "name": "train-abc", "uid": "uid-of-train-abc", "controller": True}
    return {
        "metadata": make_meta(
            name,
            uid=uid,
            deleting=deleting,
            labels=labels,
            annotations={
                **({names.SLOT_ANNOTATION: str(slot)} if slot else {}),
                **({names.SLOTS_ANNOTATION: listed} if listed else {}),
            },
            ownerReferences=[ray_cluster],
        ),
        "spec": {
            "containers": [{"name": "ray-worker", "image": "ray"}],
            "schedulingGates": [{"name": names.GATE}],
            "nodeSelector": {names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE},
        },
        "status": {
            "phase": phase,
            "conditions": [make_condition(names.DISPATCHED_CONDITION)] if dispatched else [],
        },
    }


# --- objects in a worker cluster --------------------------------------------------------------------------------------


def make_copy(pod: Raw, *, phase: str = "Running", deleting: bool = False) -> Raw:
    """The remote pod of a manager's pod."""
    found = pod["metadata"]
    place = {names.PLACEMENT_LABEL: named} if (named := found["labels"].get(names.PLACEMENT_LABEL)) else {}
    return {
        "metadata": make_meta(
            found["name"],
            uid=f"copy-of-{found['uid']}",
            deleting=deleting,
            creationTimestamp=stamp(),
            labels={names.POD_UID_LABEL: found["uid"], names.MANAGER_LABEL: "mgr", **place},
            annotations={**found["annotations"], names.WORKLOAD_ANNOTATION: "rayjob-train"},
        ),
        "status": {"phase": phase},
    }


def make_reservation(
    placement: Raw,
    *,
    round: int = 0,
    admitted: bool = True,
    conditions: Iterable[str] = (),
    deleting: bool = False,
    active: bool = True,
    message: str = "",
    counts: Groups | None = None,
    reserved: float = 0,
    priority: int | None = None,
    checks: Iterable[Raw] = (),
    refused: str = "",
) -> Raw:
    """A share's group Workload in a worker cluster.

    `message` is Kueue's while it waits, `counts` are by role, and since `reserved` it has its quota, or waits for it.
    `checks` are its admission checks, and `refused` is the message of Kueue's eviction for one of them.
    """
    number, found = round or placement["spec"]["round"], placement["metadata"]
    name, work = f"{found['name']}-{number}", placement["spec"]["workload"]
    true = [names.ADMITTED, *conditions] if admitted else list(conditions)
    return {
        "metadata": make_meta(
            name,
            deleting=deleting,
            labels={names.PLACEMENT_LABEL: found["name"], names.WORKLOAD_UID_LABEL: work["uid"]},
            annotations={
                names.WORKLOAD_ANNOTATION: work["name"],
                names.ROUND_ANNOTATION: str(number),
                **({} if priority is None else {names.PRIORITY_ANNOTATION: str(priority)}),
            },
            ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"anchor-of-{name}"}],
        ),
        "spec": {
            "queueName": QUEUE,
            "active": active,
            "podSets": [{"name": role, "count": count, "template": {}} for role, count in (counts or {}).items()],
        },
        "status": {
            "conditions": [
                make_condition(names.QUOTA_RESERVED, admitted, since=reserved, message=message),
                *(make_condition(kind) for kind in true),
                *([make_condition(names.EVICTED, reason=EVICTED_BY_CHECK, message=refused)] if refused else []),
            ],
            **({"admissionChecks": list(checks)} if checks else {}),
        },
    }


# --- objects that admins write ----------------------------------------------------------------------------------------


def make_cluster_queue(cores: int, *, used: int = 0, name: str = "team-a", **spec: Any) -> Raw:
    """A ClusterQueue with cpu in one flavor, `any`."""
    row = {"name": "cpu", "nominalQuota": str(cores)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [row]}]}
    return {
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
        "status": {"flavorsReservation": [{"name": "any", "resources": [{"name": "cpu", "total": str(used)}]}]},
    }


def make_flavor(name: str = "any", **spec: Any) -> Raw:
    return {"metadata": {"name": name}, "spec": spec}


def make_worker_cluster(name: str = "east", *, conditions: Iterable[Raw] = (), **spec: Any) -> Raw:
    source = {"kubeConfig": {"secretRef": {"name": name}}}
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "generation": 3},
        "spec": {"source": source, **spec},
        "status": {"conditions": list(conditions), "triedSource": f"Secret {name}"},
    }


def make_policy(name: str = "default", *, clusters: Iterable[object] = ("east", "west"), **spec: Any) -> Raw:
    return {"metadata": {"name": name}, "spec": {"clusters": {"names": list(clusters)}, **spec}}


def make_check(*, policy: str = "default", conditions: Iterable[Raw] = (), **parameters: Any) -> Raw:
    named = {"apiGroup": "rayspan.dev", "kind": "DispatchPolicy", "name": policy, **parameters}
    return {
        "metadata": {"name": CHECK, "uid": "uid-of-check", "generation": 2},
        "spec": {"controllerName": "rayspan.dev/dispatch", "parameters": named},
        "status": {"conditions": list(conditions)},
    }


def make_relay_key(letter: bytes = b"k") -> Raw:
    """The Secret from which the credentials of relayed networks are made."""
    metadata = {"namespace": names.SYSTEM_NAMESPACE, "name": names.RELAY_KEY_SECRET}
    return {"kind": "Secret", "metadata": metadata, "data": {"key": base64.b64encode(letter * 32).decode()}}


def make_target(cluster: str, **more: Any) -> Target:
    """A share of the usual Workload in a worker cluster."""
    plain: Raw = {
        "zone": cluster, "queue": QUEUE, "manager": "mgr", "workload": "rayjob-train",
        "workload_uid": "uid-of-rayjob-train",
        "placement": "train-1", "share": "", "round": 0,
    }  # fmt: skip
    return Target(cluster=cluster, **plain | more)


def of_service(one: Raw) -> Raw:
    """A worker pod as one of a RayService: its container runs, and it has no replica."""
    labels = {**one["metadata"]["labels"], names.RAY_SERVE_LABEL: "true"}
    running = [{"name": "ray-worker", "state": {"running": {}}}]
    return {
        **one,
        "metadata": {**one["metadata"], "labels": labels},
        "status": {**one["status"], "containerStatuses": running},
    }


def make_service(
    name: str = "chat-serve-svc", *, selects: str = "train-abc", owner: str = "RayService", **spec: Any
) -> Raw:
    """The Service that KubeRay keeps for a RayService: it selects one RayCluster of it."""
    found = {"apiVersion": "ray.io/v1", "kind": owner, "name": "chat", "uid": "uid-of-chat", "controller": True}
    selector = {names.RAY_GCS_CLUSTER_LABEL: selects, names.RAY_SERVE_LABEL: "true"}
    port = {"name": "serve", "protocol": "TCP", "port": 8000, "targetPort": 8000}
    labels = {names.RAY_SERVE_LABEL: "chat-serve"}
    return {
        "metadata": make_meta(name, labels=labels, ownerReferences=[found] if owner else []),
        "spec": {"type": "ClusterIP", "ipFamilies": ["IPv4"], "selector": selector, "ports": [port], **spec},
    }


def make_serving(name: str = "worker-0", *, address: str = "10.1.0.1", ready: bool = True, **more: Any) -> Raw:
    """A dispatched worker of a RayService, as its remote pod is mirrored."""
    pod = of_service(
        make_pod(name, placement="train", dispatched=True, phase="Running", **{"slot": "east/1/w/0", **more})
    )
    told = [*pod["status"]["conditions"], make_condition("Ready", ready)]
    return {**pod, "status": {**pod["status"], "conditions": told, "podIP": address, "podIPs": [{"ip": address}]}}


def make_serving_copy(pod: Raw, **more: Any) -> Raw:
    """The remote pod from which such a worker is mirrored."""
    copy = make_copy(pod, **more)
    return {**copy, "status": {**copy["status"], "podIP": pod["status"]["podIP"], "podIPs": pod["status"]["podIPs"]}}
