"""Typed records of a RayCluster's spec, and the pods, head and owner of a RayCluster.

Objects are read as KubeRay leaves them in the manager cluster. A RayCluster is identified by its uid: a new one may
have the same name, and a label is easily forged.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from adapter import names
from adapter.objects.location import Location, labelled_location
from adapter.objects.ray_start import JOIN_PARAMS
from adapter.objects.unstructured import (
    NAME_PATTERN,
    Raw,
    condition,
    controller_uid,
    label,
    mapping_field,
    mapping_list,
    meta,
    text_field,
    truncate,
    uid_of,
    whole_field,
)
from adapter.objects.workload import Job

_UID_PATTERN: Final = re.compile(r"[-0-9A-Za-z]{1,64}")  # an API server writes 36 of these


def find_head(pod: Raw, heads: Iterable[Raw]) -> Raw | None:
    """The head pod of a worker pod's RayCluster; None while no head has an address and is not being deleted."""
    living_heads = _living_heads(pod, heads)
    return next((head for head in living_heads if mapping_field(head, "status").get("podIP")), None)


def find_starting_head(pod: Raw, heads: Iterable[Raw]) -> Raw | None:
    """The same, and without an address the head that may still get one."""
    living_heads = list(_living_heads(pod, heads))
    return find_head(pod, living_heads) or next(iter(living_heads), None)


def _living_heads(pod: Raw, heads: Iterable[Raw]) -> Iterator[Raw]:
    for head in heads:
        if controller_uid(head) == controller_uid(pod) and not meta(head).get("deletionTimestamp"):
            yield head


def belongs_to_job(pod: Raw, ray_cluster: Raw | None, job: Job | None) -> bool | None:
    """Whether a pod belongs to the RayCluster that a job has, or that is the job; None while that is unknown.

    `ray_cluster` is the RayCluster in the pod's label. It is None if it was deleted before its pods, or was not
    observed yet.
    """
    if ray_cluster is None and _owner_matches_label(pod):
        return None
    if ray_cluster is None or job is None or controller_uid(pod) != uid_of(ray_cluster):
        return False
    return job.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))


def _owner_matches_label(pod: Raw) -> bool:
    """Whether the RayCluster in a pod's label controls the pod. Kubernetes deletes a pod whose owner never existed."""
    name = label(pod, names.RAY_GCS_CLUSTER_LABEL)
    owners = mapping_list(meta(pod), "ownerReferences")
    return any(
        owner.get("controller") and (owner.get("kind"), owner.get("name")) == ("RayCluster", name) for owner in owners
    )


def was_complete(ray_cluster: Raw) -> bool:
    """Whether all pods of a RayCluster ran at one time since it was last suspended.

    The state stays `ready` when pods end. The condition RayClusterProvisioned ignores pods that do not exist
    (kuberay:controllers/ray/raycluster_controller.go, calculateStatus).
    """
    return text_field(mapping_field(ray_cluster, "status"), "state") == "ready"


def creation_failure(ray_cluster: Raw) -> str:
    """Why KubeRay could not create or delete pods of a RayCluster, in its words; empty if it could."""
    failure = condition(ray_cluster, "RayClusterReplicaFailure")
    return truncate(text_field(failure, "message")) if failure.get("status") == "True" else ""


def owning_service(ray_cluster: Raw) -> Job | None:
    """The RayService that controls a RayCluster, None where there is none."""
    return kuberay_owner(ray_cluster, (names.RAY_SERVICE,))


def kuberay_owner(raw: Raw, kinds: Collection[str]) -> Job | None:
    """The KubeRay object of one of these kinds that controls an object; None where there is none.

    Name and uid are validated, because users may write any owner: an API server only requires that they are not empty.
    """
    for owner in mapping_list(meta(raw), "ownerReferences"):
        if owner.get("controller") and owner.get("kind") in kinds:
            version, name, uid = (str(owner.get(key) or "") for key in ("apiVersion", "name", "uid"))
            if not (
                version.partition("/")[0] == names.RAY_DOMAIN
                and NAME_PATTERN.fullmatch(name)
                and _UID_PATTERN.fullmatch(uid)
            ):
                return None
            return Job(version, str(owner["kind"]), str(meta(raw).get("namespace") or ""), name, uid)
    return None


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """A worker group of a RayCluster's spec; an absent number is None where its default is not 0."""

    name: str
    replicas: int
    min_replicas: int
    max_replicas: int | None
    num_of_hosts: int | None
    suspended: bool
    labels: Raw
    join_params: Raw  # the rayStartParams that ray_start.JOIN_PARAMS names
    template: Raw

    @property
    def podset(self) -> str:
        """The name of the group's podset: Kueue lower-cases the group's name."""
        return self.name.lower()

    @property
    def hosts(self) -> int:
        """The workers of a replica; Kueue counts at least one."""
        return max(1, 1 if self.num_of_hosts is None else self.num_of_hosts)

    @property
    def location(self) -> Location:
        """The location in its Ray labels."""
        return labelled_location(self.labels)

    @property
    def desired_workers(self) -> int:
        """How many pods KubeRay makes for it (kuberay:controllers/ray/utils/util.go, GetWorkerGroupDesiredReplicas)."""
        if self.suspended:
            return 0
        most = self.replicas if self.max_replicas is None else self.max_replicas
        replicas = self.min_replicas if self.replicas < self.min_replicas else min(self.replicas, most)
        return replicas * (1 if self.num_of_hosts is None else self.num_of_hosts)

    @property
    def fewest_workers(self) -> int:
        """To how many pods Ray's autoscaler may reduce it."""
        hosts = 1 if self.num_of_hosts is None else self.num_of_hosts
        return min(self.min_replicas * hosts, self.desired_workers)

    @property
    def quota_workers(self) -> int:
        """Workers that Kueue holds quota for (kueue:pkg/controller/jobs/raycluster/common.go, effectiveWorkerCount).

        Absent replicas are 0: KubeRay's CRD sets them so before Kueue reads the object.
        """
        return self.replicas * self.hosts


@dataclass(frozen=True, slots=True)
class RayClusterSpec:
    """The spec of a RayCluster, or of the RayCluster inside a RayJob."""

    groups: tuple[WorkerGroup, ...] = ()
    head_service: str = ""  # the name that the user gives the head's Service
    autoscaling: bool = False
    autoscaler_version: str = ""
    autoscaler_env: frozenset[str] = frozenset()  # names of the variables in autoscalerOptions.env
    tls: bool = False  # tlsOptions are set, and not disabled
    token_auth: bool = False

    def head_service_of(self, ray_cluster: str) -> str:
        """The name of the head's Service of a RayCluster with this name and spec."""
        return self.head_service or f"{ray_cluster}{names.HEAD_SERVICE_SUFFIX}"

    def desired_workers(self, podsets: Collection[str]) -> int:
        return sum(group.desired_workers for group in self.groups if group.podset in podsets)

    def fewest_workers(self, podsets: Collection[str]) -> int:
        return sum(group.fewest_workers for group in self.groups if group.podset in podsets)


def spec_and_path(kind: str, raw: Raw, *, of_service: bool = False) -> tuple[Raw, str]:
    """The RayCluster's spec in a RayJob or RayCluster, and the path of that spec in the file; never raises.

    `of_service`: the file has the RayService of which `raw` is the RayCluster.
    """
    spec = mapping_field(raw, "spec")
    if kind == "RayJob":
        return mapping_field(spec, "rayClusterSpec"), "spec.rayClusterSpec"
    return spec, "spec.rayClusterConfig" if of_service else "spec"


def read_spec(spec: Raw) -> RayClusterSpec:
    """Read the spec of a RayCluster (kuberay:apis/ray/v1/raycluster_types.go); never raises."""
    options = mapping_field(spec, "autoscalerOptions")
    tls = spec.get("tlsOptions")
    return RayClusterSpec(
        groups=tuple(map(_read_group, mapping_list(spec, "workerGroupSpecs"))),
        head_service=text_field(meta(mapping_field(mapping_field(spec, "headGroupSpec"), "headService")), "name"),
        autoscaling=bool(spec.get("enableInTreeAutoscaling")),
        autoscaler_version=text_field(options, "version"),
        autoscaler_env=frozenset(text_field(variable, "name") for variable in mapping_list(options, "env")),
        tls=isinstance(tls, dict) and tls.get("enabled") is not False,
        token_auth=bool(mapping_field(spec, "authOptions").get("enableK8sTokenAuth")),
    )


def _read_group(raw: Raw) -> WorkerGroup:
    start_params = mapping_field(raw, "rayStartParams")
    return WorkerGroup(
        name=text_field(raw, "groupName"),
        replicas=whole_field(raw, "replicas") or 0,
        min_replicas=whole_field(raw, "minReplicas") or 0,
        max_replicas=whole_field(raw, "maxReplicas"),
        num_of_hosts=whole_field(raw, "numOfHosts"),
        suspended=bool(raw.get("suspend")),
        labels=mapping_field(raw, "labels"),
        join_params={name: start_params[name] for name in JOIN_PARAMS if name in start_params},
        template=mapping_field(raw, "template"),
    )
