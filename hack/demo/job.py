"""The demo's job: submitted, and everything that is left of it afterwards.

It is the sample that users start with, unedited. It touches no other job. What a gang left behind is found by the uid
of its Workload.
"""

from collections.abc import Iterable
from pathlib import Path

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import clusters
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.reader import Raw

NAME = "rayjob-pi"
NAMESPACE = "default"
SAMPLE = Path("manifests/samples/rayjob-pi.yaml")

_REMOVAL = 120.0  # seconds; the pods' grace period of 30 s is in it
SUBMITTER_OF = "job-name"  # Kubernetes' label on the pods of a Job
KINDS = ("pods", "workloads", "configmaps", "placements")

Counts = dict[str, dict[str, int]]
"""By cluster and kind, how many objects there are; a kind that a cluster does not have is left out."""


def submit(manager: Cluster) -> None:
    manager.kubectl("apply", "-f", REPO / SAMPLE)


def find(manager: Cluster) -> Raw:
    return manager.get("rayjobs.ray.io", NAME, NAMESPACE)


def pods(cluster: Cluster, gangs: Iterable[str]) -> list[Raw]:
    """The job's pods in a cluster: in the manager by KubeRay's labels, in a worker cluster by ours."""
    return [pod for pod in cluster.items("pods", NAMESPACE) if _mine(pod, gangs)]


def placements(manager: Cluster) -> list[Raw]:
    found = manager.items("placements.rayspan.dev", NAMESPACE)
    return [one for one in found if one["spec"]["job"]["name"] == NAME]


def gangs(manager: Cluster) -> set[str]:
    """The uids of the job's Workloads: usually one."""
    found = manager.items("workloads.kueue.x-k8s.io", NAMESPACE)
    ours = {one["metadata"]["uid"] for one in found if _owned(one)}
    return ours | {one["spec"]["workload"]["uid"] for one in placements(manager)}


def remove(fleet: Clusters, known: Iterable[str] = ()) -> Counts:
    """Delete the job and wait until nothing of it is left in any cluster; what was counted last."""
    uids = {*known, *gangs(fleet.manager)}
    fleet.manager.kubectl("delete", "-f", REPO / SAMPLE, "--ignore-not-found", "--timeout=90s")
    clusters.wait(
        lambda: not total(left(fleet, uids)), _REMOVAL, f"everything of {NAME} is gone",
        lambda: "Left are " + told(left(fleet, uids)) + ".",
    )  # fmt: skip
    return left(fleet, uids)


def left(fleet: Clusters, uids: Iterable[str]) -> Counts:
    return {each.name: _count(each, set(uids), manager=each is fleet.manager) for each in fleet.all}


def total(counts: Counts) -> int:
    return sum(number for kinds in counts.values() for number in kinds.values())


def told(counts: Counts) -> str:
    found = [f"{n} {kind} in {cluster}" for cluster, kinds in counts.items() for kind, n in kinds.items() if n]
    return ", ".join(found) or "nothing"


def _count(cluster: Cluster, uids: set[str], *, manager: bool) -> dict[str, int]:
    kinds = KINDS if manager else KINDS[:-1]
    return {kind: sum(_mine(one, uids) for one in cluster.items(kind, NAMESPACE)) for kind in kinds}


def _mine(found: Raw, uids: Iterable[str]) -> bool:
    """Remote objects carry the Workload's uid; the others are found by KubeRay's and Kueue's names and labels."""
    labels = found["metadata"].get("labels") or {}
    ray_cluster, _, _ = labels.get(names.RAY_GCS_CLUSTER_LABEL, "").rpartition(
        "-"
    )  # KubeRay: the job's name and a suffix
    known_as = (ray_cluster, labels.get(SUBMITTER_OF), found["metadata"]["name"], _recorded(found))
    return NAME in known_as or labels.get(names.WORKLOAD_UID_LABEL) in set(uids) or _owned(found)


def _recorded(found: Raw) -> object:
    """Whose workers a Placement records."""
    return ((found.get("spec") or {}).get("job") or {}).get("name")


def _owned(found: Raw) -> bool:
    owners = found["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] == "RayJob" and owner["name"] == NAME for owner in owners)
