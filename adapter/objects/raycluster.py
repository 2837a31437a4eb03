"""Which pods does a RayCluster have: its head, how many workers, and is a pod one of them? For how many does Kueue hold quota, and
which RayService is it of?

Read from the objects as KubeRay leaves them in the manager cluster. A RayCluster may be made anew under its name, so it is told
by its uid; a label is easily forged.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw, controller_uid, label, meta, uid_of
from adapter.objects.workload import Job

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # of any object of a kind that a CRD defines
_UID: Final = re.compile(r"[-0-9A-Za-z]{1,64}")  # an API server's are 36 of these


def head(pod: Raw, heads: Iterable[Raw]) -> Raw | None:
    """The head of a worker pod's RayCluster among those of its name, None while there is none with an address that stays."""
    for one in heads:
        same = controller_uid(one) == controller_uid(pod)
        if same and not meta(one).get("deletionTimestamp") and (one.get("status") or {}).get("podIP"):
            return one
    return None


def belongs(pod: Raw, ray_cluster: Raw | None, job: Job | None) -> bool | None:
    """Whether a pod is of the RayCluster that a job has, or that is the job.

    `ray_cluster` is the one whose name the pod's label says, None when there is none. The answer is None while that is not known:
    it was deleted before its pods, or was not heard of yet.
    """
    if ray_cluster is None and _says_so(pod):
        return None
    if ray_cluster is None or job is None or controller_uid(pod) != uid_of(ray_cluster):
        return False
    return job.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))


def _says_so(pod: Raw) -> bool:
    """Whether a pod is a RayCluster's that has the name which its label says. Of one that there never was Kubernetes deletes it."""
    name = label(pod, names.RAY_GCS_CLUSTER_LABEL)
    owners = meta(pod).get("ownerReferences") or ()
    return any(one.get("controller") and (one.get("kind"), one.get("name")) == ("RayCluster", name) for one in owners)


def service(ray_cluster: Raw) -> Job | None:
    """The RayService that KubeRay made a RayCluster of, None where it is of a RayJob, or a user's own."""
    return owner(ray_cluster, (names.RAY_SERVICE,))


def owner(raw: Raw, kinds: Collection[str]) -> Job | None:
    """The object of KubeRay's that controls another one, where it is of one of these kinds.

    Whoever may make an object may write any owner into it, and an API server asks of its name and uid only that they are not empty.
    """
    for one in meta(raw).get("ownerReferences") or ():
        if one.get("controller") and one.get("kind") in kinds:
            version, name, uid = (str(one.get(key) or "") for key in ("apiVersion", "name", "uid"))
            if not (version.partition("/")[0] == names.RAY_DOMAIN and _NAME.fullmatch(name) and _UID.fullmatch(uid)):
                return None
            return Job(version, str(one["kind"]), str(meta(raw).get("namespace") or ""), name, uid)
    return None


def workers(ray_cluster: Raw, groups: Collection[str]) -> int:
    """How many workers of these groups (lower case) it is to have, as KubeRay reckons."""
    listed = (ray_cluster.get("spec") or {}).get("workerGroupSpecs") or ()
    return sum(made(group) for group in listed if str(group.get("groupName")).lower() in groups)


def made(group: Raw) -> int:
    """How many pods KubeRay makes of a worker group (kuberay:controllers/ray/utils/util.go, GetWorkerGroupDesiredReplicas)."""
    if group.get("suspend"):
        return 0
    replicas, least = int(group.get("replicas") or 0), int(group.get("minReplicas") or 0)
    most = _or(group.get("maxReplicas"), replicas)
    return (least if replicas < least else min(replicas, most)) * _or(group.get("numOfHosts"), 1)


def counted(group: Raw) -> int:
    """For how many Kueue holds quota (kueue:pkg/controller/jobs/raycluster/common.go, effectiveWorkerCount): absent replicas are 0,
    for KubeRay's CRD says so before Kueue sees them."""
    return int(group.get("replicas") or 0) * max(1, _or(group.get("numOfHosts"), 1))


def _or(value: Any, default: int) -> int:
    return default if value is None else int(value)
