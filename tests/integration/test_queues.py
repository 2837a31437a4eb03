"""Jobs run in queues as people have them: topologies of racks, Kueue's own settings, and objects of an older version.

Real Kueue and KubeRay; workers on fake nodes.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import kueueconfig, nodes
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage

pytestmark = pytest.mark.alone

RACK, HOSTNAME = "example.com/rack", "kubernetes.io/hostname"
CPUS = 2  # of each node; a rack has two nodes
UNDECLARED, MIG, CREDITS = "example.com/hca", "example.com/mig", "example.com/credits"
SETTINGS = {
    "resources": {
        "quotaCheckStrategy": "IgnoreUndeclared",
        "transformations": [{"input": MIG, "strategy": "Replace", "outputs": {CREDITS: "2"}}],
    },
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "5m", "usageSamplingInterval": "1m"},
}


@pytest.fixture(scope="module")
def settings(fleet: Clusters) -> Iterator[Cluster]:
    """East, whose Kueue has the settings of many sites at once."""
    east = fleet.workers["east"]
    with ExitStack() as cleanup:
        cleanup.callback(kueueconfig.restart, [east])
        cleanup.enter_context(kueueconfig.changed(east, lambda config: {**config, **SETTINGS}))
        kueueconfig.restart([east])
        cleanup.enter_context(nodes.added(east, "devices", {UNDECLARED: "64", MIG: "64"}))
        yield east


def test_workers_that_request_a_topology_run_in_one_rack(stage: Stage, running: Controller) -> None:
    """A gang of one zone is packed by Kueue there, in a queue with a plain flavor and a flavor with racks.

    A worker that is replaced stays in the rack. A gang that no rack holds waits, and says so.
    """
    stage.clusters = ("east",)
    stage.build({"east": 8})
    with ExitStack() as cleanup:
        _add_racks(cleanup, stage, {"plain": 8})
        stage.ray_cluster("plain", workers=1)
        stage.ray_cluster("packed", workers=3, annotations={names.REQUIRED_TOPOLOGY_ANNOTATION: RACK})
        wait(lambda: stage.running(4), 90, "both jobs run", lambda: dump(stage, running))
        (share,) = [raw for raw in stage.remote("workloads")["east"] if raw["metadata"]["name"].startswith("packed")]
        assert share["spec"]["podSets"][0]["topologyRequest"] == {"required": RACK}
        (rack,) = _racks_of(stage, "packed")
        assert rack and _flavor_of(stage, "plain") == {stage.name}, "a job without a request has the plain flavor"

        pod = _pods(stage, "packed")[0]["metadata"]["name"]
        stage.fleet.workers["east"].kubectl("-n", stage.name, "delete", "pod", pod, "--wait=false")
        wait(lambda: pod not in [p["metadata"]["name"] for p in _pods(stage, "packed")], 30, f"{pod} is gone")
        wait(lambda: stage.running(4), 90, "the worker is replaced", lambda: dump(stage, running))
        assert _racks_of(stage, "packed") == {rack}

        stage.ray_cluster("large", workers=5, annotations={names.REQUIRED_TOPOLOGY_ANNOTATION: RACK})
        wait(lambda: "topology" in stage.reason("large"), 60, "Kueue's words are on the Placement", running.tail)
        stage.ray_cluster("spread", workers=5, annotations={names.PREFERRED_TOPOLOGY_ANNOTATION: RACK})
        wait(lambda: stage.running(9), 90, "the job that only prefers one rack runs", lambda: dump(stage, running))
        assert len(_racks_of(stage, "spread")) == 2
        assert stage.where("large") == ""


def test_workers_without_a_request_run_where_all_flavors_have_a_topology(stage: Stage, running: Controller) -> None:
    stage.clusters = ("east",)
    stage.build({"east": 8})
    with ExitStack() as cleanup:
        _add_racks(cleanup, stage, {})
        stage.ray_cluster("job", workers=3)
        wait(lambda: stage.running(3), 90, "the job runs", lambda: dump(stage, running))
        assert all(names.KUEUE_UNCONSTRAINED_TOPOLOGY in pod["metadata"]["annotations"] for pod in _pods(stage, "job"))


def test_a_queue_with_many_settings_of_kueue_takes_jobs(stage: Stage, running: Controller, settings: Cluster) -> None:
    """East ignores and transforms resources, has several flavors, and orders by fair sharing.

    Kueue accepts no excludeResourcePrefixes beside IgnoreUndeclared; test_kueue_resources.py has them. The planner asks
    that Kueue, and never denies what it admits.
    """
    stage.clusters = ("east",)
    stage.build({"east": 8}, resource=CREDITS)
    _cover(stage, [UNDECLARED, MIG])
    east = settings
    second = stage.add(east, "ResourceFlavor", {"spec": {}}, f"{stage.name}-second")
    spec = east.get("clusterqueues", stage.name)["spec"]
    flavors = spec["resourceGroups"][0]["flavors"]
    flavors.append({**flavors[0], "name": second})
    spec |= {
        "fairSharing": {"weight": "2"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    }
    east.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    more = {UNDECLARED: "1", MIG: "1"}
    stage.ray_cluster("first", workers=3, more=more)
    wait(lambda: stage.running(3), 120, "the first job runs", lambda: dump(stage, running))
    stage.ray_cluster("second", workers=3, more=more)
    wait(lambda: stage.running(6), 120, "the second job runs, in the other flavor", lambda: dump(stage, running))
    assert _flavor_of(stage, "") == {stage.name, second}


def test_queues_of_an_older_version_take_jobs_and_check_names_them(stage: Stage, running: Controller) -> None:
    stage.clusters = ("east",)
    stage.build({"east": 4})
    for cluster in (stage.manager, stage.fleet.workers["east"]):
        cluster.apply(_as_v1beta1(cluster, stage.name))
    stage.ray_cluster("job", workers=2)
    wait(lambda: stage.running(2), 90, "the job runs", lambda: dump(stage, running))

    words = [sys.executable, "-m", "adapter", "check", "--kubeconfig", str(stage.manager.kubeconfig), "-o", "json"]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=180, check=False)
    notes = json.loads(done.stdout)["notes"]
    writers = stage.manager.kubectl("get", "clusterqueue", stage.name, "--show-managed-fields", "-o", "yaml")
    note = f"ClusterQueue {stage.name} was last written as kueue.x-k8s.io/v1beta1"
    assert [text for text in notes if note in text], f"{notes}\n{writers}"


def _add_racks(cleanup: ExitStack, stage: Stage, plain: dict[str, int]) -> None:
    """Give east two racks of two nodes, and its queue a flavor with them; with `plain`, behind the stage's own."""
    east = stage.fleet.workers["east"]
    for index in range(4):
        name = f"{stage.name}-{index}"
        cleanup.enter_context(nodes.added(east, name))
        east.kubectl("label", "node", name, f"{RACK}=rack-{index // 2}", f"example.com/pool={stage.name}")
        amounts = json.dumps({"status": {kind: {"cpu": str(CPUS)} for kind in ("capacity", "allocatable")}})
        east.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", amounts)
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]
    topology = stage.add(east, "Topology", {"spec": {"levels": levels}}, f"{stage.name}-racks")
    flavor = {"nodeLabels": {"example.com/pool": stage.name}, "topologyName": topology}
    racked = stage.add(east, "ResourceFlavor", {"spec": flavor}, f"{stage.name}-racked")
    groups = east.get("clusterqueues", stage.name)["spec"]["resourceGroups"]
    own = groups[0]["flavors"][0]
    groups[0]["flavors"] = [*([own] if plain else []), {**own, "name": racked}]
    patch = json.dumps({"spec": {"resourceGroups": groups}})
    east.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", patch)


def _cover(stage: Stage, resources: list[str]) -> None:
    """Let the manager's queue cover more resources."""
    groups = stage.manager.get("clusterqueues", stage.name)["spec"]["resourceGroups"]
    groups[0]["coveredResources"] += resources
    groups[0]["flavors"][0]["resources"] += [{"name": name, "nominalQuota": "100"} for name in resources]
    patch = json.dumps({"spec": {"resourceGroups": groups}})
    stage.manager.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", patch)


def _pods(stage: Stage, job: str) -> list[Raw]:
    pods = stage.remote()["east"]
    return [pod for pod in pods if pod["metadata"]["labels"].get(names.REMOTE_RAY_CLUSTER_LABEL) == job]


def _racks_of(stage: Stage, job: str) -> set[str]:
    """The racks of the nodes on which a job's workers run; empty for a node in none."""
    east = stage.fleet.workers["east"]
    racks = {node["metadata"]["name"]: node["metadata"]["labels"].get(RACK, "") for node in east.items("nodes")}
    return {racks[pod["spec"]["nodeName"]] for pod in _pods(stage, job)}


def _flavor_of(stage: Stage, job: str) -> set[str]:
    """The flavors of the shares of jobs whose names begin so."""
    shares = (raw for raw in stage.remote("workloads")["east"] if raw["metadata"]["name"].startswith(job))
    assignments = [entry for share in shares for entry in share["status"]["admission"]["podSetAssignments"]]
    return {str(assignment["flavors"]["cpu"]) for assignment in assignments}


def _as_v1beta1(cluster: Cluster, queue: str) -> str:
    """A ClusterQueue of the older version, as a file of an older cluster has it."""
    spec: dict[str, Any] = dict(cluster.get("clusterqueues", queue)["spec"])
    checks = spec.pop("admissionChecksStrategy", None)
    kept = {key: spec[key] for key in ("resourceGroups", "namespaceSelector")}
    if checks:
        kept["admissionChecks"] = [check["name"] for check in checks["admissionChecks"]]
    made = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": kept}
    return yaml.safe_dump(made)
