"""Volcano gets the PodGroup of a share before the first worker, and the job says why when it cannot get one.

Real API servers, Kueue and KubeRay, and the PodGroups of Volcano's own CRD, which only east has. No scheduler of that
name runs there: the test binds the pods to fake nodes itself, when it has seen what Volcano would see.
"""

import json
from collections.abc import Iterator

import pytest
import yaml

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.stage import FAKE_NODE, Stage
from hack.testbed.volcano import KIND, known
from hack.testbed.workerclusters import meant

pytestmark = pytest.mark.long

TENANT = "rayspan-worker-tenant"


@pytest.fixture(scope="module", autouse=True)
def installed(fleet: Clusters) -> Iterator[None]:
    """East knows PodGroups, as where Volcano is installed."""
    with known(fleet.workers["east"]):
        yield


def test_a_share_is_one_pod_group_until_it_goes(stage: Stage, running: Controller) -> None:
    """One for all its worker groups, in the queue that the cluster's pod mapping names; a replaced worker joins it."""
    _scheduled(stage, {"east": 3}, annotations={names.VOLCANO_QUEUE_ANNOTATION: "research"})
    stage.ray_cluster("pi", workers=0, groups={"workers": 2, "gpu": 1})
    copies = wait(lambda: _waiting(stage, 3), 90, "three copies wait for Volcano", lambda: dump(stage, running))
    (group,), (anchor,) = _groups(stage), stage.remote("configmaps")["east"]
    assert group["spec"] == {"minMember": 3, "minResources": {"cpu": "3"}, "queue": "research"}
    assert [owner["uid"] for owner in group["metadata"]["ownerReferences"]] == [anchor["metadata"]["uid"]]
    assert all(_created(group) <= _created(copy) for copy in copies)
    assert {_member(copy) for copy in copies} == {group["metadata"]["name"]}
    assert {copy["spec"]["schedulerName"] for copy in copies} == {"volcano"}

    _bind(stage, copies)
    wait(lambda: stage.running(3), 60, "three workers run", lambda: dump(stage, running))
    stage.fleet.workers["east"].delete("pod", copies[0]["metadata"]["name"], stage.name, wait=False)
    again = wait(lambda: _waiting(stage, 1), 60, "another one waits", lambda: dump(stage, running))
    assert (_member(again[0]), _groups(stage)) == (group["metadata"]["name"], [group])
    _bind(stage, again)
    wait(lambda: stage.running(3), 60, "three workers run again", lambda: dump(stage, running))

    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not (stage.leftovers() or _groups(stage)), 60, "nothing is left", lambda: str(stage.leftovers()))


def test_without_volcano_the_job_says_so_and_runs_where_it_is(stage: Stage, running: Controller) -> None:
    """West has no PodGroups: no quota of it is held, and the sentence is on the job."""
    own = _scheduled(stage, {"west": 2, "east": 2}, timeout="5s")
    wait(lambda: stage.connected(own.values()), 30, "west is tried first", running.tail)
    stage.ray_cluster("pi", workers=2)
    said = str(
        wait(lambda: stage.events("pi").get("ReservationTimeout"), 60, "the job says so", lambda: dump(stage, running))
    )
    _bind(stage, wait(lambda: _waiting(stage, 2), 90, "two copies wait for Volcano", lambda: dump(stage, running)))
    wait(lambda: stage.running(2), 60, "two workers run", lambda: dump(stage, running))
    assert stage.where("pi") == f"2 {own['east']}"
    assert "its API server denies the share: PodGroup " in said
    assert ", which spec.pods.schedulerName volcano requires, cannot be created: " in said
    assert "; install Volcano there, or let the WorkerCluster name another scheduler" in said
    assert not stage.remote("workloads")["west"]


def test_without_the_right_the_job_says_so(stage: Stage, running: Controller) -> None:
    """As where the worker's manifests were applied before there were PodGroups."""
    _scheduled(stage, {"east": 1}, timeout="5s")
    _without_the_right(stage)
    stage.ray_cluster("pi", workers=1)
    wait(lambda: "ReservationTimeout" in stage.events("pi"), 60, "the job says so", lambda: dump(stage, running))
    said = stage.told("pi", "ReservationTimeout")
    assert 'cannot create resource "podgroups" in API group "scheduling.volcano.sh"' in said
    assert "; apply kustomize/overlays/worker there" in said
    assert not stage.remote("workloads")["east"] and not _groups(stage)


def test_killed_between_the_pod_group_and_the_share(stage: Stage, process: Controller) -> None:
    """The next one finds the PodGroup, and makes the share beside it."""
    _scheduled(stage, {"east": 1})
    process.start(die_after=("PodGroup", 1, stage.name))
    stage.ray_cluster("pi", workers=1)
    process.wait_for_death()
    (group,) = _groups(stage)
    assert not stage.remote("workloads")["east"], "quota was asked for before there was a PodGroup"
    process.start()
    copies = wait(lambda: _waiting(stage, 1), 90, "a copy waits for Volcano", process.tail)
    assert (_member(copies[0]), _groups(stage)) == (group["metadata"]["name"], [group])


def _scheduled(
    stage: Stage, cpu: dict[str, int], *, timeout: str = "30s", annotations: dict[str, str] | None = None
) -> dict[str, str]:
    """Build the stage over new WorkerClusters in this order, whose pods are for Volcano; returns their names."""
    own = {name: f"{stage.name}-{name}" for name in cpu}
    pods = {"schedulerName": names.VOLCANO_SCHEDULER, "annotations": annotations or {}}
    for name, each in own.items():
        spec = {"source": {"kubeConfig": {"secretRef": {"name": name}}}, "pods": pods}
        metadata = {"name": each, "annotations": meant(stage.fleet.workers[name])}
        made = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": metadata}
        stage.manager.apply(yaml.safe_dump({**made, "spec": spec}))
        stage.made.append((stage.manager, f"workercluster.{names.DOMAIN}", each))
    stage.build(cpu, timeout=timeout, policy={"clusters": {"names": list(own.values())}})
    return own


def _without_the_right(stage: Stage) -> None:
    """Open the namespace in east to all that its manifests give, less PodGroups."""
    east, group = stage.fleet.workers["east"], "rbac.authorization.k8s.io"
    rules = [rule for rule in east.get("clusterroles", TENANT)["rules"] if rule["resources"] != ["podgroups"]]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": TENANT, "namespace": stage.name}}
    binding = east.get("rolebindings", "rayspan-worker", stage.name)
    metadata, reference = (
        {"name": "earlier", "namespace": stage.name},
        {"apiGroup": group, "kind": "Role", "name": TENANT},
    )
    bound = {**role, "kind": "RoleBinding", "metadata": metadata, "roleRef": reference, "subjects": binding["subjects"]}
    east.apply(yaml.safe_dump_all([{**role, "rules": rules}, bound]))
    east.delete("rolebinding", "rayspan-worker", stage.name)
    account = binding["subjects"][0]
    user = f"--as=system:serviceaccount:{account['namespace']}:{account['name']}"
    wait(lambda: not _may_create(east, stage.name, user), 20, "the right is taken back")


def _may_create(cluster: Cluster, namespace: str, user: str) -> bool:
    try:
        return "yes" in cluster.kubectl("auth", "can-i", "create", KIND, "-n", namespace, user).split()
    except LabError:  # it says no by its exit status as well
        return False


def _waiting(stage: Stage, count: int) -> list[Raw]:
    """The copies in east that Kueue lets go and nobody scheduled, once there are so many."""
    found = [copy for copy in stage.remote()["east"] if not copy["spec"].get("schedulingGates")]
    waiting = [copy for copy in found if not (copy["spec"].get("nodeName") or "deletionTimestamp" in copy["metadata"])]
    return waiting if len(waiting) == count else []


def _bind(stage: Stage, copies: list[Raw]) -> None:
    """Do what Volcano would do."""
    east = stage.fleet.workers["east"]
    selector = ",".join(f"{key}={value}" for key, value in FAKE_NODE.items())
    node = east.items("nodes", None, selector)[0]["metadata"]["name"]
    for copy in copies:
        metadata = {"name": copy["metadata"]["name"], "namespace": stage.name}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = f"/api/v1/namespaces/{stage.name}/pods/{metadata['name']}/binding"
        east.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(binding))


def _groups(stage: Stage) -> list[Raw]:
    return stage.fleet.workers["east"].items(KIND, stage.name)


def _member(copy: Raw) -> str:
    return str(copy["metadata"]["annotations"].get(names.POD_GROUP_ANNOTATION))


def _created(made: Raw) -> str:
    return str(made["metadata"]["creationTimestamp"])
