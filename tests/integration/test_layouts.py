"""Both layouts of the manager's queues do what docs/queues.md says of them.

The stage's queue gets the flavors local and remote, and the policy that ships with them is limited to this queue.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.release import __main__ as release
from hack.testbed.auditlog import Written
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import FAKE_NODE, QUEUE, TOLERATION, Stage, ray_cluster, told

pytestmark = [pytest.mark.alone, pytest.mark.long]  # nodes are labelled, and a policy sees every RayCluster

LOCAL, REMOTE = "local", "remote"
POLICY = REPO / "manifests" / "queues" / "local-remote" / "pool-policy.yaml"
MANUAL = REPO / "docs" / "queues.md"
SAMPLE = REPO / "manifests" / "samples" / "raycluster-mixed.yaml"
COMPONENTS = REPO / "kustomize" / "components"
TAINT = {"key": names.POOL_LABEL, "value": REMOTE, "effect": "NoSchedule"}


@pytest.fixture
def pools(stage: Stage, running: Controller) -> Iterator[Stage]:
    """A stage whose queue has the two flavors, four CPUs in each, and nodes with the label that `local` asks for."""
    stage.build({"east": 2, "west": 2})
    manager = stage.manager
    flavors = {pool: f"{stage.name[:40]}-{pool}" for pool in (LOCAL, REMOTE)}
    for pool, name in flavors.items():
        spec = {"nodeLabels": {names.POOL_LABEL: pool}, **({"nodeTaints": [TAINT]} if pool == REMOTE else {})}
        stage.add(manager, "ResourceFlavor", {"spec": spec}, name)
    quota = [{"name": f, "resources": [{"name": "cpu", "nominalQuota": "4"}]} for f in flavors.values()]
    spec = {
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quota}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": stage.name, "onFlavors": [flavors[REMOTE]]}]},
    }
    manager.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps({"spec": spec}))
    manager.kubectl("apply", "-f", POLICY)
    manager.kubectl("-n", stage.name, "label", "localqueue", QUEUE, f"{names.POOL_LABEL}={REMOTE}")
    manager.kubectl("label", "nodes", "--all", "--overwrite", f"{names.POOL_LABEL}={LOCAL}")
    try:
        wait(lambda: _sent_away(stage), 30, "the policy is in force")
        wait(lambda: _said(stage)["reason"] == "Ready", 30, "nothing is wrong with the layout", running.tail)
        yield stage
    finally:
        manager.kubectl("delete", "-f", POLICY)
        manager.kubectl("label", "nodes", "--all", f"{names.POOL_LABEL}-")


def test_workers_are_counted_in_remote_and_all_else_in_local(pools: Stage, running: Controller) -> None:
    """A head, a group that is sent away and one that its user keeps here: one job, two ledgers, one check."""
    body = ray_cluster("pi", pools.name, {"far": 3, "near": 1})
    near = body["spec"]["workerGroupSpecs"][1]["template"]["spec"]
    near["nodeSelector"] = {**FAKE_NODE, names.POOL_LABEL: LOCAL}
    pools.manager.apply(yaml.safe_dump(body))
    wait(lambda: pools.running(4), 90, "all workers run", running.tail)

    assert _pools(pools, "pi") == {"head": LOCAL, "far": REMOTE, "near": LOCAL}
    assert [update["name"] for update in pools.check("pi")["podSetUpdates"]] == ["far"]
    wait(lambda: _reserved(pools) == {LOCAL: "1100m", REMOTE: "3"}, 10, "Kueue shows both ledgers", running.tail)
    by_group = {pod["metadata"]["name"]: pod["metadata"]["labels"]["ray.io/group"] for pod in pools.workers()}
    copies = [pod for found in pools.remote().values() for pod in found]
    assert sorted(by_group[pod["metadata"]["name"]] for pod in copies) == ["far"] * 3
    for pod in pools.workers():
        assert ("nodeName" in pod["spec"]) == (by_group[pod["metadata"]["name"]] == "near")


def test_the_pool_stays_at_home(pools: Stage, running: Controller) -> None:
    """Neither the reservation nor the copy asks for the manager's pool; what the user asked for goes with them."""
    pools.ray_cluster("pi", workers=1)
    wait(lambda: pools.running(1), 90, "the worker runs", running.tail)
    (worker,) = pools.workers()
    assert worker["spec"]["nodeSelector"][names.POOL_LABEL] == REMOTE
    assert _tolerations(worker["spec"]) == [{**TAINT, "operator": "Equal"}]
    templates = [
        podset["template"]["spec"] for share in pools.remote("workloads")["east"] for podset in share["spec"]["podSets"]
    ]
    for spec in (*templates, *(pod["spec"] for pod in pools.remote()["east"])):
        assert spec["nodeSelector"] == FAKE_NODE
        assert _tolerations(spec) == []
        assert TOLERATION in spec["tolerations"]


@pytest.mark.usefixtures("audited")
def test_jobs_with_nothing_remote_pass_us_by(pools: Stage, running: Controller) -> None:
    """A RayCluster that stays here and an ordinary Job: admitted without our check, and no Placement is made."""
    written = Written(pools)
    body = ray_cluster("home", pools.name, {"near": 1})
    body["spec"]["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"] = {**FAKE_NODE, names.POOL_LABEL: LOCAL}
    pools.manager.apply(yaml.safe_dump(body))
    pools.manager.apply(yaml.safe_dump(_job(pools.name)))
    for name in ("home", "batch"):
        wait(partial(_admitted, pools, name), 60, f"{name} is admitted", running.tail)
        assert set(_pools(pools, name).values()) == {LOCAL}
        assert pools.check(name) == {}
        assert pools.placement(name) == {}
    wait(lambda: pools.running(1), 60, "the worker runs here", running.tail)
    assert written.take() == [], "no cluster was asked for anything"


def test_a_ray_job_keeps_its_head_and_its_submitter(pools: Stage, running: Controller) -> None:
    """The RayCluster that KubeRay makes of it comes by the policy again, and that changes nothing."""
    cluster = ray_cluster("pi", pools.name, {"far": 2})
    pools.manager.apply(yaml.safe_dump(_ray_job(cluster)))
    wait(lambda: pools.running(2), 90, "both workers run", running.tail)
    assert _pools(pools, "pi") == {"head": LOCAL, "far": REMOTE, names.SUBMITTER: LOCAL}
    (made,) = pools.manager.items("rayclusters", pools.name)
    (job,) = pools.manager.items("rayjobs", pools.name)
    for found in (made["spec"], job["spec"]["rayClusterSpec"]):
        template = found["workerGroupSpecs"][0]["template"]["spec"]
        assert template["nodeSelector"][names.POOL_LABEL] == REMOTE
        assert _tolerations(template) == [{**TAINT, "operator": "Equal"}]
        assert TOLERATION in template["tolerations"]
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert head["nodeSelector"] == {**FAKE_NODE, names.POOL_LABEL: LOCAL}, "by Kueue, as the job was admitted"


def test_applying_a_job_again_brings_no_worker_home(pools: Stage, running: Controller) -> None:
    """kubectl puts the user's own worker groups back in place of those that run; the policy is asked again."""
    pools.ray_cluster("pi", workers=1)
    wait(lambda: pools.running(1), 90, "the worker runs", running.tail)
    pools.ray_cluster("pi", workers=1)
    (found,) = pools.manager.items("rayclusters", pools.name)
    template = found["spec"]["workerGroupSpecs"][0]["template"]
    assert template["spec"]["nodeSelector"][names.POOL_LABEL] == REMOTE, template
    assert _tolerations(template["spec"]) == [{**TAINT, "operator": "Equal"}]


@pytest.mark.usefixtures("audited")
def test_what_is_wrong_with_a_layout_stands_on_its_check(pools: Stage, running: Controller) -> None:
    """The check is still Active, so local jobs pass. A gang whose checks exclude each other is told so, and holds
    nothing elsewhere."""
    manager = pools.manager
    manager.kubectl("-n", pools.name, "label", "localqueue", QUEUE, f"{names.POOL_LABEL}-")
    wait(lambda: _said(pools)["reason"] == "InvalidQueueLayout", 30, "the missing label is told", running.tail)
    assert _said(pools)["status"] == "True"
    assert _said(pools)["message"].startswith(
        f"LocalQueue {QUEUE} in {pools.name} has no label {names.POOL_LABEL}=remote"
    )
    wait(
        lambda: "InvalidQueueLayout" in told(manager, "admissionchecks", pools.name), 10, "an event, too", running.tail
    )

    manager.kubectl("-n", pools.name, "label", "localqueue", QUEUE, f"{names.POOL_LABEL}={REMOTE}")
    wait(lambda: _said(pools)["reason"] == "Ready", 30, "all is well again", running.tail)
    rival = f"{pools.name[:40]}-rival"
    spec = {
        "controllerName": names.CONTROLLER_NAME,
        "parameters": manager.get("admissionchecks", pools.name)["spec"]["parameters"],
    }
    body = {"apiVersion": names.KUEUE_API_VERSION, "kind": "AdmissionCheck", "metadata": {"name": rival}, "spec": spec}
    manager.apply(yaml.safe_dump(body))
    pools.made.insert(0, (manager, "admissionchecks", rival))
    path = "/spec/admissionChecksStrategy/admissionChecks/-"
    added = json.dumps([{"op": "add", "path": path, "value": {"name": rival}}])
    manager.kubectl("patch", "clusterqueue", pools.name, "--type=json", "-p", added)
    wait(lambda: "leave one of them there" in _said(pools)["message"], 30, "the rival is told", running.tail)
    wait(lambda: _read_by_kueue(pools), 30, "Kueue asks both checks from now on", running.tail)
    written = Written(pools)
    pools.ray_cluster("pi", workers=1)
    wait(
        lambda: "leave one of them there" in pools.events("pi").get("FailedDispatch", ""),
        60,
        "the job too",
        running.tail,
    )
    assert written.take() == [], "no cluster was asked for anything"
    manager.kubectl(
        "patch", "clusterqueue", pools.name, "--type=json", "-p", added.replace("add", "remove", 1).replace("/-", "/1")
    )
    wait(lambda: pools.running(1), 60, "the worker runs when it is gone", running.tail)


@pytest.mark.parametrize("layout", ["shared-flavor", "local-remote"])
def test_a_layout_applies_as_it_is_shipped(fleet: Clusters, layout: str) -> None:
    """The API server, Kueue's webhooks and CEL take every object of it."""
    how = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    said = fleet.manager.kubectl("apply", *how, "-k", COMPONENTS / layout)
    assert "clusterqueue.kueue.x-k8s.io/ray serverside-applied" in said


def test_the_gpu_queues_apply_as_they_are_shipped(fleet: Clusters) -> None:
    for folder, cluster in (("manager", fleet.manager), ("worker", fleet.workers["east"])):
        path = REPO / "manifests" / "queues" / "gpu" / folder
        output = cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-k", path)
        assert "clusterqueue.kueue.x-k8s.io/gpu serverside-applied" in output


def test_the_manual_keeps_its_word(fleet: Clusters, tmp_path: Path) -> None:
    """Every command and every object in docs/queues.md is taken, and so is the sample; nothing is changed by it."""
    commands = [line for block in _blocks("sh") for line in block.splitlines()]
    assert len(commands) > 3
    release.write(tmp_path, "dev", "rayspan/rayspan")
    for command in commands:
        words = command.removeprefix("kubectl --context manager ").replace("$RELEASE", str(tmp_path)).split()
        changes = words[0] in ("apply", "label")
        places = [str(REPO / word) if word.startswith("manifests/") else word for word in words]
        fleet.manager.kubectl(*places, *(("--dry-run=server",) if changes else ()))
    objects = [block for block in _blocks("yaml") if block.startswith("# in the manager cluster")]
    assert objects
    for text in (*objects, SAMPLE.read_text()):
        fleet.manager.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", MANUAL.read_text(), re.MULTILINE | re.DOTALL)


def _sent_away(stage: Stage) -> bool:
    """Whether a RayCluster of the stage's queue would get the pool: the policy takes effect a moment after it is
    applied."""
    body = ray_cluster("probe", stage.name, {"far": 1})
    said = stage.manager.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=yaml.safe_dump(body))
    spec = json.loads(said)["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    return bool(spec["nodeSelector"] == {**FAKE_NODE, names.POOL_LABEL: REMOTE})


def _said(stage: Stage) -> Raw:
    return {"reason": "", **condition(stage.manager.get("admissionchecks", stage.name), names.ACTIVE)}


def _read_by_kueue(stage: Stage) -> bool:
    """Whether the queue is open by Kueue's own word on what it lists now; we may have read it first."""
    queue = stage.manager.get("clusterqueues", stage.name)
    active = condition(queue, names.ACTIVE)
    same = active.get("observedGeneration") == queue["metadata"]["generation"]
    return same and active.get("status") == "True"


def _pools(stage: Stage, job: str) -> dict[str, str]:
    """The pool in which each podset is counted."""
    assigned = ((stage.workload(job).get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    return {one["name"]: one["flavors"]["cpu"].rpartition("-")[2] for one in assigned}


def _reserved(stage: Stage) -> dict[str, str]:
    status = stage.manager.get("clusterqueues", stage.name)["status"]
    return {one["name"].rpartition("-")[2]: one["resources"][0]["total"] for one in status["flavorsReservation"]}


def _tolerations(spec: Mapping[str, Any]) -> list[Raw]:
    """Those of the pool's taint."""
    return [one for one in spec.get("tolerations", ()) if one.get("key") == names.POOL_LABEL]


def _admitted(stage: Stage, job: str) -> bool:
    conditions = (stage.workload(job).get("status") or {}).get("conditions") or ()
    return any(one["type"] == names.ADMITTED and one["status"] == "True" for one in conditions)


def _job(namespace: str) -> Raw:
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "resources": {"requests": {"cpu": "100m"}}}
    pod = {"restartPolicy": "Never", "nodeSelector": FAKE_NODE, "tolerations": [TOLERATION], "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "batch", "namespace": namespace, "labels": {names.QUEUE_LABEL: QUEUE}},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


def _ray_job(cluster: Raw) -> Raw:
    """A RayJob of a RayCluster's parts; its submitter asks for what the stage's queues cover, which is cpu."""
    container = {"name": "ray-job-submitter", "image": "rayproject/ray:2.60.0", "resources": {"requests": {"cpu": "1"}}}
    pod = {"restartPolicy": "Never", "nodeSelector": FAKE_NODE, "tolerations": [TOLERATION], "containers": [container]}
    return {
        "apiVersion": names.RAY_API_VERSION,
        "kind": "RayJob",
        "metadata": cluster["metadata"],
        "spec": {
            "entrypoint": "true",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster["spec"],
            "submitterPodTemplate": {"spec": pod},
        },
    }
