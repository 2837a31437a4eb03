"""Typed records of a RayCluster's spec, and which pods, head and owner a RayCluster has.

Read from the objects as KubeRay leaves them in the manager cluster. A RayCluster may be made anew under its name, so it is identified
by its uid; a label is easily forged.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from adapter import names
from adapter.objects.unstructured import (
    Raw,
    controller_uid,
    label,
    mapping_field,
    mapping_list,
    meta,
    text_field,
    uid_of,
    whole_field,
)
from adapter.objects.workload import Job

_NAME_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # of any object of a kind that a CRD defines
_UID_PATTERN: Final = re.compile(r"[-0-9A-Za-z]{1,64}")  # an API server's are 36 of these


def find_head(pod: Raw, heads: Iterable[Raw]) -> Raw | None:
    """The head of a worker pod's RayCluster among those of its name, None while there is none with an address that stays."""
    for one in heads:
        same = controller_uid(one) == controller_uid(pod)
        if same and not meta(one).get("deletionTimestamp") and mapping_field(one, "status").get("podIP"):
            return one
    return None


def belongs_to_job(pod: Raw, ray_cluster: Raw | None, job: Job | None) -> bool | None:
    """Whether a pod is of the RayCluster that a job has, or that is the job.

    `ray_cluster` is the one whose name the pod's label says, None when there is none. The answer is None while that is not known:
    it was deleted before its pods, or was not heard of yet.
    """
    if ray_cluster is None and _owner_matches_label(pod):
        return None
    if ray_cluster is None or job is None or controller_uid(pod) != uid_of(ray_cluster):
        return False
    return job.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))


def _owner_matches_label(pod: Raw) -> bool:
    """Whether a pod is a RayCluster's that has the name which its label says. Of one that there never was Kubernetes deletes it."""
    name = label(pod, names.RAY_GCS_CLUSTER_LABEL)
    owners = mapping_list(meta(pod), "ownerReferences")
    return any(
        owner.get("controller") and (owner.get("kind"), owner.get("name")) == ("RayCluster", name) for owner in owners
    )


def owning_service(ray_cluster: Raw) -> Job | None:
    """The RayService that KubeRay made a RayCluster of, None where it is of a RayJob, or a user's own."""
    return kuberay_owner(ray_cluster, (names.RAY_SERVICE,))


def kuberay_owner(raw: Raw, kinds: Collection[str]) -> Job | None:
    """The object of KubeRay's that controls another one, where it is of one of these kinds.

    Whoever may make an object may write any owner into it, and an API server asks of its name and uid only that they are not empty.
    """
    for one in mapping_list(meta(raw), "ownerReferences"):
        if one.get("controller") and one.get("kind") in kinds:
            version, name, uid = (str(one.get(key) or "") for key in ("apiVersion", "name", "uid"))
            if not (
                version.partition("/")[0] == names.RAY_DOMAIN
                and _NAME_PATTERN.fullmatch(name)
                and _UID_PATTERN.fullmatch(uid)
            ):
                return None
            return Job(version, str(one["kind"]), str(meta(raw).get("namespace") or ""), name, uid)
    return None


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """A worker group of a RayCluster's spec; an absent number is None where it has another default than 0."""

    name: str
    replicas: int
    min_replicas: int
    max_replicas: int | None
    num_of_hosts: int | None
    suspended: bool
    labels: Raw
    template: Raw  # of its pods

    @property
    def podset(self) -> str:
        """The name of its podset: Kueue writes it in lower case."""
        return self.name.lower()

    @property
    def zone(self) -> str:
        """The zone that its Ray labels promise, empty without one."""
        return text_field(self.labels, names.RAY_ZONE_LABEL)

    @property
    def desired_workers(self) -> int:
        """How many pods KubeRay makes of it (kuberay:controllers/ray/utils/util.go, GetWorkerGroupDesiredReplicas)."""
        if self.suspended:
            return 0
        most = self.replicas if self.max_replicas is None else self.max_replicas
        replicas = self.min_replicas if self.replicas < self.min_replicas else min(self.replicas, most)
        return replicas * (1 if self.num_of_hosts is None else self.num_of_hosts)

    @property
    def quota_workers(self) -> int:
        """For how many Kueue holds quota (kueue:pkg/controller/jobs/raycluster/common.go, effectiveWorkerCount).

        Absent replicas are 0: KubeRay's CRD sets them so before Kueue reads the object.
        """
        return self.replicas * max(1, 1 if self.num_of_hosts is None else self.num_of_hosts)


@dataclass(frozen=True, slots=True)
class RayClusterSpec:
    """The spec of a RayCluster, or of the RayCluster inside a RayJob, as far as we depend on it."""

    groups: tuple[WorkerGroup, ...] = ()
    autoscaling: bool = False  # enableInTreeAutoscaling
    autoscaler_version: str = ""
    autoscaler_env: frozenset[str] = frozenset()  # the variables that its user gave to the autoscaler
    tls: bool = False  # tlsOptions are set, and not disabled
    token_auth: bool = False  # authOptions.enableK8sTokenAuth

    def desired_workers(self, podsets: Collection[str]) -> int:
        """How many workers of these podsets it is to have, as KubeRay counts them."""
        return sum(group.desired_workers for group in self.groups if group.podset in podsets)


def read_spec(spec: Raw) -> RayClusterSpec:
    """Read the spec of a RayCluster (kuberay:apis/ray/v1/raycluster_types.go); never raises."""
    options = mapping_field(spec, "autoscalerOptions")
    tls = spec.get("tlsOptions")
    return RayClusterSpec(
        groups=tuple(map(_read_group, mapping_list(spec, "workerGroupSpecs"))),
        autoscaling=bool(spec.get("enableInTreeAutoscaling")),
        autoscaler_version=text_field(options, "version"),
        autoscaler_env=frozenset(text_field(variable, "name") for variable in mapping_list(options, "env")),
        tls=isinstance(tls, dict) and tls.get("enabled") is not False,
        token_auth=bool(mapping_field(spec, "authOptions").get("enableK8sTokenAuth")),
    )


def _read_group(raw: Raw) -> WorkerGroup:
    return WorkerGroup(
        name=text_field(raw, "groupName"),
        replicas=whole_field(raw, "replicas") or 0,
        min_replicas=whole_field(raw, "minReplicas") or 0,
        max_replicas=whole_field(raw, "maxReplicas"),
        num_of_hosts=whole_field(raw, "numOfHosts"),
        suspended=bool(raw.get("suspend")),
        labels=mapping_field(raw, "labels"),
        template=mapping_field(raw, "template"),
    )
