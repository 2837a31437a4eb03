"""What a WorkerCluster names is on the remote pod, in the namespaces that it names; everything else is refused."""

import json
from collections.abc import Callable, Iterable

import pytest
import yaml

from adapter import names
from hack.testbed.auditlog import Written
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, ray_cluster

Write = Callable[[Raw], str]
MODELS = "/mnt/models"


@pytest.fixture
def write(stage: Stage, running: Controller) -> Write:
    """Write the spec.pods of a WorkerCluster of the test's own, which leads to east; returns its name."""
    own = stage.own("east")
    stage.clusters = (own, "west")

    def written(pods: Raw) -> str:
        patch = json.dumps([{"op": "add", "path": "/spec/pods", "value": pods}])
        stage.manager.kubectl("patch", "workercluster", own, "--type=json", "-p", patch)
        wait(_observed, 20, "the controller has observed it", running.tail)
        return own

    def _observed() -> bool:
        raw = stage.manager.get("workerclusters", own)
        generation = condition(raw, names.CONNECTED).get("observedGeneration")
        return bool(generation == raw["metadata"]["generation"])

    return written


def _names(stage: Stage, *, namespaces: Iterable[str] = ()) -> Raw:
    scope = {"namespaces": [*namespaces] or [stage.name]}
    return {
        "serviceAccounts": [{"name": "raydata", "as": "ray-ksa", **scope}],
        "persistentVolumeClaims": [{"name": "models", "as": "fsx", "readOnly": True, **scope}],
        "hostPaths": [{"prefix": MODELS, **scope}],
        "env": {"HF_ENDPOINT": "https://mirror.east.example"},
    }


def _job(stage: Stage, name: str, *, account: str = "raydata") -> Raw:
    """A RayCluster of one worker that needs an account, a claim and a host path."""
    body = ray_cluster(name, stage.name, {"workers": 1})
    spec = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    spec["serviceAccountName"] = account
    spec["volumes"] = [
        {"name": "claim", "persistentVolumeClaim": {"claimName": "models"}},
        {"name": "host", "hostPath": {"path": f"{MODELS}/llama"}},
    ]
    spec["containers"][0]["volumeMounts"] = [
        {"name": "claim", "mountPath": "/claim"},
        {"name": "host", "mountPath": "/host"},
    ]
    return body


def _give_account(cluster: Cluster, namespace: str, name: str) -> None:
    about = {"name": name, "namespace": namespace}
    cluster.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}))


def _give_claim(stage: Stage, cluster: Cluster, name: str) -> None:
    """A claim that is bound to a volume of the nodes."""
    volume = f"{stage.name}-{name}"
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    spec = {"capacity": size, "accessModes": modes, "storageClassName": "", "hostPath": {"path": "/tmp"}}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec}
    cluster.apply(yaml.safe_dump(body))
    stage.made.append((cluster, "persistentvolume", volume))
    claim = {"accessModes": modes, "storageClassName": "", "volumeName": volume, "resources": {"requests": size}}
    about = {"name": name, "namespace": stage.name}
    cluster.apply(
        yaml.safe_dump({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": claim})
    )


def _build(stage: Stage) -> None:
    stage.build({"east": 2, "west": 2})
    east = stage.fleet.workers["east"]
    _give_account(stage.manager, stage.name, "raydata")
    _give_account(east, stage.name, "ray-ksa")
    _give_claim(stage, east, "fsx")


def test_what_is_named_is_on_the_remote_pod(stage: Stage, running: Controller, write: Write) -> None:
    """West has capacity and names nothing, so the job goes to east alone."""
    own = write(_names(stage))
    _build(stage)
    stage.manager.apply(yaml.safe_dump(_job(stage, "pi")))
    wait(lambda: stage.running(1), 90, "it runs", running.tail)
    assert stage.where("pi") == f"1 {own}"
    (pod,) = stage.remote()["east"]
    spec = pod["spec"]
    assert spec["serviceAccountName"] == "ray-ksa"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["claim"]["persistentVolumeClaim"] == {"claimName": "fsx", "readOnly": True}
    assert volumes["host"]["hostPath"]["path"] == f"{MODELS}/llama"
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    for name in ("claim", "host"):
        assert (mounts[name]["readOnly"], mounts[name]["recursiveReadOnly"]) == (True, "IfPossible")
    assert {"name": "HF_ENDPOINT", "value": "https://mirror.east.example"} in spec["containers"][0]["env"]


@pytest.mark.usefixtures("audited")
def test_what_is_named_for_another_namespace_is_refused(stage: Stage, running: Controller, write: Write) -> None:
    """Nothing is asked of a cluster, and the line in the message is what the administrator has to write."""
    own = write(_names(stage, namespaces=["somebody-else"]))
    _build(stage)
    written = Written(stage)
    stage.manager.apply(yaml.safe_dump(_job(stage, "pi")))
    text = stage.told("pi", "Rejected")
    line = f"spec.pods.serviceAccounts: [{{name: raydata, namespaces: [{stage.name}]}}]"
    assert f"raydata: no WorkerCluster of the policy names it for namespace {stage.name}; " in text
    assert f"an administrator can add {line} to WorkerCluster {own} or west" in text
    assert written.take() == [], "no cluster was asked for anything"

    entries = yaml.safe_load(line)["spec.pods.serviceAccounts"]
    write({**_names(stage), "serviceAccounts": [{**entries[0], "as": "ray-ksa"}]})
    stage.manager.delete("raycluster", "pi", stage.name)
    stage.manager.apply(yaml.safe_dump(_job(stage, "pi")))
    wait(lambda: stage.running(1), 90, "with that line it runs", running.tail)


@pytest.mark.long
def test_an_account_that_does_not_exist_there_is_known_before_any_quota_is_held(
    stage: Stage, running: Controller, write: Write
) -> None:
    write({**_names(stage), "serviceAccounts": [{"name": "*", "as": "nobody-made-it"}]})
    _build(stage)
    stage.manager.apply(yaml.safe_dump(_job(stage, "pi")))
    wait(lambda: "nobody-made-it" in stage.reason("pi"), 60, "its dry run is denied", running.tail)
    assert stage.reserving() == 0
    _give_account(stage.fleet.workers["east"], stage.name, "nobody-made-it")
    wait(lambda: stage.running(1), 150, "it runs once the account exists and the denial has expired", running.tail)


@pytest.mark.long
def test_a_new_pod_is_not_created_when_less_is_named(stage: Stage, running: Controller, write: Write) -> None:
    """The pod that runs keeps what it has."""
    write(_names(stage))
    _build(stage)
    stage.manager.apply(yaml.safe_dump(_job(stage, "pi")))
    wait(lambda: stage.running(1), 90, "it runs", running.tail)
    write({"serviceAccounts": [{"name": "raydata", "as": "ray-ksa"}]})
    assert stage.running(1)
    (pod,) = stage.remote()["east"]
    stage.fleet.workers["east"].delete("pod", pod["metadata"]["name"], stage.name, wait=False)
    wait(lambda: "WorkerFailing" in stage.events("pi"), 60, "the job says why", running.tail)
    assert (
        "is not created: spec.volumes[claim].persistentVolumeClaim is models: its WorkerCluster does not name it"
        in (stage.events("pi")["WorkerFailing"])
    )
    assert not [copy for copy in stage.remote()["east"] if copy["metadata"]["uid"] != pod["metadata"]["uid"]]


# --- extended resources, RuntimeClasses, schedulers and priority classes ------------------------------------------

# The fake nodes have nvidia.com/gpu.
AMD, NVIDIA = "amd.com/gpu", "nvidia.com/gpu"


def _build_makes(stage: Stage) -> None:
    """East covers nvidia.com/gpu; the manager and west cover amd.com/gpu, which no node there has."""
    stage.build({"east": 4, "west": 4}, resource=AMD)
    group = "/spec/resourceGroups/0"
    patch = [
        {"op": "replace", "path": f"{group}/coveredResources/1", "value": NVIDIA},
        {"op": "replace", "path": f"{group}/flavors/0/resources/1/name", "value": NVIDIA},
    ]
    stage.fleet.workers["east"].kubectl("patch", "clusterqueue", stage.name, "--type=json", "-p", json.dumps(patch))


def _requests(pod: Raw) -> Raw:
    resources: Raw = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"].items() <= resources["requests"].items()
    return {name: amount for name, amount in resources["requests"].items() if name in (AMD, NVIDIA)}


def _usage(cluster: Cluster, namespace: str) -> Raw:
    """What Kueue counts of the worker podsets of the only admitted Workload."""
    (workload,) = [raw for raw in cluster.items("workloads", namespace) if (raw.get("status") or {}).get("admission")]
    assignments = workload["status"]["admission"]["podSetAssignments"]
    return {name: amount for part in assignments for name, amount in part["resourceUsage"].items() if "/" in name}


def test_a_cluster_of_another_make_serves_the_job(stage: Stage, running: Controller, write: Write) -> None:
    """A worker that is replaced after the names were removed still fits its share."""
    own = write({"extendedResources": {AMD: NVIDIA}})
    _build_makes(stage)
    stage.ray_cluster("pi", workers=2, more={AMD: "2"})
    wait(lambda: stage.running(2), 90, "it runs", running.tail)
    assert stage.where("pi") == f"2 {own}"
    east = stage.fleet.workers["east"]
    pods = stage.remote()["east"]
    assert [_requests(pod) for pod in pods] == [{NVIDIA: "2"}] * 2
    assert [_requests(pod) for pod in stage.workers()] == [{AMD: "2"}] * 2
    assert (_usage(stage.manager, stage.name), _usage(east, stage.name)) == ({AMD: "4"}, {NVIDIA: "4"})

    write({})
    assert {pod["metadata"]["uid"] for pod in stage.remote()["east"]} == {pod["metadata"]["uid"] for pod in pods}
    lost = pods[0]["metadata"]
    east.delete("pod", lost["name"], stage.name, wait=False)
    wait(
        lambda: (
            stage.running(2)
            and len(uids := {pod["metadata"]["uid"] for pod in stage.remote()["east"]}) == 2
            and lost["uid"] not in uids
        ),
        90,
        "the worker is replaced on its share",
        running.tail,
    )
    assert [_requests(pod) for pod in stage.remote()["east"]] == [{NVIDIA: "2"}] * 2


def test_a_cluster_that_is_too_small_is_described_by_both_names(
    stage: Stage, running: Controller, write: Write
) -> None:
    """Five workers with a device each; east has a quota of four."""
    write({"extendedResources": {AMD: NVIDIA}})
    _build_makes(stage)
    stage.ray_cluster("pi", workers=5, cpu="100m", more={AMD: "1"})
    wait(lambda: f"{AMD} is {NVIDIA} there" in stage.reason("pi"), 60, "the Placement says so", running.tail)
    assert stage.reserving() == 0


def _give_classes(stage: Stage, cluster: Cluster, name: str, overhead: str) -> None:
    """A RuntimeClass and a PriorityClass."""
    group: Raw = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
    fixed = {"overhead": {"podFixed": {"cpu": overhead}}} if overhead else {}
    priority: Raw = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    for body in ({**group, "handler": "runc", **fixed}, {**priority, "value": len(name)}):
        cluster.apply(yaml.safe_dump(body))
        stage.made.append((cluster, body["kind"].lower(), name))


@pytest.mark.long
def test_classes_have_the_names_of_the_cluster(stage: Stage, running: Controller, write: Write) -> None:
    """The overhead of the RuntimeClass there is counted. A class that is not in the list is refused."""
    mine, theirs = stage.name, f"{stage.name}-east"
    entry = {"name": mine, "as": theirs, "namespaces": [stage.name]}
    scheduler = {"name": "volcano", "as": "default-scheduler"}
    own = write({"runtimeClasses": [entry], "priorityClasses": [entry], "schedulers": [scheduler]})
    stage.clusters = (own,)
    stage.build({"east": 2})
    east = stage.fleet.workers["east"]
    _give_classes(stage, stage.manager, mine, "")
    _give_classes(stage, east, theirs, "250m")
    body = ray_cluster("pi", stage.name, {"workers": 1})
    spec = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    spec |= {"runtimeClassName": mine, "priorityClassName": mine, "schedulerName": "volcano"}
    stage.manager.apply(yaml.safe_dump(body))
    wait(lambda: stage.running(1), 90, "it runs", running.tail)
    (pod,) = stage.remote()["east"]
    fields = ("runtimeClassName", "priorityClassName", "schedulerName", "priority")
    assert [pod["spec"][field] for field in fields] == [theirs, theirs, "default-scheduler", len(theirs)]
    (share,) = [raw for raw in east.items("workloads", stage.name) if raw["status"].get("admission")]
    assert share["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] == "1250m"
    assert "priorityClassRef" not in share["spec"]

    write({"runtimeClasses": [{**entry, "namespaces": ["somebody-else"]}]})
    stage.manager.delete("raycluster", "pi", stage.name)
    stage.manager.apply(yaml.safe_dump({**body, "metadata": {**body["metadata"], "name": "e"}}))
    line = f"spec.pods.runtimeClasses: [{{name: {mine}, namespaces: [{stage.name}]}}]"
    assert f"an administrator can add {line} to WorkerCluster {own}" in stage.told("e", "Rejected")
