"""Does a RayCluster that spans clusters come back whole when its head is restarted under another address?"""

import json
from collections.abc import Iterator

import pytest
import yaml

from adapter import names
from e2e.job import NAMESPACE, SAMPLE
from hack.apireader import Raw
from hack.clusters import Clusters, condition, wait
from hack.lab.progress import LabError

NAME = "head-restarted"
PATIENCE = 180  # seconds: what the owner of a RayCluster is promised
ALIVE = "import json, ray; ray.init(logging_level='ERROR'); print(json.dumps([n['NodeManagerAddress'] for n in ray.nodes() if n['Alive']]))"


@pytest.fixture
def cluster(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Clusters]:
    """A RayCluster without a job, of the sample's shape: four workers, two in each worker cluster; or as many as is asked for."""
    rayjob = next(o for o in yaml.safe_load_all(SAMPLE.read_text()) if o["kind"] == "RayJob")
    spec = rayjob["spec"]["rayClusterSpec"]
    template = spec["headGroupSpec"]["template"]["spec"]
    group = spec["workerGroupSpecs"][0]
    group["replicas"] = group["minReplicas"] = group["maxReplicas"] = getattr(request, "param", 4)
    template.pop("volumes")
    template["containers"][0].pop("volumeMounts")
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": rayjob["metadata"]["labels"]}
    made = {"apiVersion": rayjob["apiVersion"], "kind": "RayCluster", "metadata": metadata, "spec": spec}
    fleet.manager.apply(yaml.safe_dump(made))
    yield fleet
    fleet.manager.delete("raycluster", NAME, wait=False)
    wait(lambda: not _pods(fleet, "worker"), 60, "its workers are gone")


def test_workers_come_back_to_a_head_with_another_address(cluster: Clusters) -> None:
    wait(lambda: len(_ready(cluster, "worker")) == 4 and len(_ready(cluster, "head")) == 1, PATIENCE,
         "all run", lambda: _dump(cluster))  # fmt: skip
    before, old = _ready(cluster, "head")[0], {pod["metadata"]["uid"] for pod in _pods(cluster, "worker")}
    cluster.manager.kubectl("delete", "pod", before["metadata"]["name"], "--wait=false")
    wait(
        lambda: _moved(cluster, before),
        PATIENCE,
        "another head runs, and four workers made for it",
        lambda: _dump(cluster),
    )
    assert not old & {pod["metadata"]["uid"] for pod in _pods(cluster, "worker")}
    wait(lambda: _joined(cluster), 30, "Ray hears from all of them, and from nobody else", lambda: _dump(cluster))


@pytest.mark.parametrize("cluster", [2], indirect=True, ids=["two"])
def test_workers_rejoin_a_head_that_they_find_by_name(mirroring: None, cluster: Clusters) -> None:
    """The same pods: when Ray gives up the old head their containers start again, and join the new one by its name."""
    wait(lambda: len(_ready(cluster, "worker")) == 2 and _joined(cluster), PATIENCE, "all run", lambda: _dump(cluster))
    before, old = _ready(cluster, "head")[0], {pod["metadata"]["uid"] for pod in _pods(cluster, "worker")}
    cluster.manager.kubectl("delete", "pod", before["metadata"]["name"], "--wait=false")
    wait(
        lambda: (
            all(head["metadata"]["uid"] != before["metadata"]["uid"] for head in _ready(cluster, "head"))
            and _joined(cluster)
        ),
        PATIENCE,
        "they joined another head",
        lambda: _dump(cluster),
    )
    assert old == {pod["metadata"]["uid"] for pod in _pods(cluster, "worker")}


def _joined(fleet: Clusters) -> bool:
    """Whether all are ready, and Ray's head hears from itself and from all workers, and from nobody else."""
    heads, workers = _ready(fleet, "head"), _pods(fleet, "worker")
    if len(heads) != 1 or len(workers) != len(_ready(fleet, "worker")):
        return False
    try:
        said = fleet.manager.kubectl(
            "exec", heads[0]["metadata"]["name"], "-c", "ray-head", "--", "python", "-c", ALIVE
        )
    except LabError:  # it is about to go, or does not answer yet
        return False
    return sorted(json.loads(said.strip().splitlines()[-1])) == sorted(
        pod["status"]["podIP"] for pod in [heads[0], *workers]
    )


def _moved(fleet: Clusters, before: Raw) -> bool:
    heads = [head for head in _ready(fleet, "head") if head["metadata"]["uid"] != before["metadata"]["uid"]]
    if not heads or len(_ready(fleet, "worker")) != 4:
        return False
    copies = [pod for worker in fleet.workers.values() for pod in worker.items("pods", NAMESPACE, names.MANAGER_LABEL)]
    return [pod["metadata"]["annotations"][names.HEAD_ANNOTATION] for pod in copies] == [
        heads[0]["status"]["podIP"]
    ] * 4


def _pods(fleet: Clusters, kind: str) -> list[Raw]:
    labels = f"{names.RAY_NODE_TYPE_LABEL}={kind},{names.RAY_GCS_CLUSTER_LABEL}={NAME}"
    return fleet.manager.items("pods", NAMESPACE, labels)


def _ready(fleet: Clusters, kind: str) -> list[Raw]:
    return [pod for pod in _pods(fleet, kind) if condition(pod, "Ready").get("status") == "True"]


def _dump(fleet: Clusters) -> str:
    return "\n".join([fleet.manager.kubectl("get", "pods,placements", "-o", "wide"), *_last_words(fleet)])


def _last_words(fleet: Clusters) -> Iterator[str]:
    """What containers said before they were started again."""
    for name, worker in fleet.workers.items():
        for copy in worker.items("pods", NAMESPACE, names.MANAGER_LABEL):
            if any(each["restartCount"] for each in copy["status"].get("containerStatuses") or ()):
                pod = copy["metadata"]["name"]
                yield f"{name}/{pod}:\n" + worker.kubectl("logs", pod, "-c", "ray-worker", "--previous", "--tail=15")
