"""Decides whether a worker cluster is the recorded cluster, by the uid of its kube-system namespace.

A name, address or kubeconfig can come to lead to another cluster, whose empty lists do not mean that the first cluster
is empty. A cluster keeps its uid as long as its etcd. While no uid is recorded, any uid is accepted that no other
WorkerCluster has. shell/clusters reads the uid and acts on the decision.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.unstructured import Raw, annotation, key_of, meta, printable

_MAX_UID_LENGTH = 64  # characters; a real uid has 36


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """The recorded identity of a WorkerCluster at one moment."""

    name: str
    uid: str = ""  # status.clusterUID; empty: never observed
    accepted_uid: str = ""  # the uid that its admin accepts
    # uid -> the other WorkerCluster that has it
    other_cluster_by_uid: Mapping[str, str] = field(default_factory=dict)
    claim_taken_from: str = ""  # the holder from whom its admin takes the claim (cluster_claim.py)


@dataclass(frozen=True, slots=True)
class IdentityConflict:
    """Why a cluster is not taken for the recorded cluster: a condition's reason, and a fragment."""

    reason: str
    message: str


def identity_record(cluster: Raw, clusters: Iterable[Raw]) -> IdentityRecord:
    """The recorded identity of `cluster`, which is one of `clusters`."""
    name, uid = key_of(cluster)[1], recorded_uid(cluster)
    other_clusters = {}
    # If two WorkerClusters have the same uid, the first registered one wins.
    for other in sorted(clusters, key=_registration_order, reverse=True):
        is_same = key_of(other)[1] == name
        if (
            not is_same
            and recorded_uid(other)
            and (recorded_uid(other) != uid or _registration_order(other) < _registration_order(cluster))
        ):
            other_clusters[recorded_uid(other)] = key_of(other)[1]
    accepted, taken_from = (
        annotation(cluster, key) for key in (names.ACCEPT_CLUSTER_ANNOTATION, names.TAKE_OVER_ANNOTATION)
    )
    return IdentityRecord(name, uid, accepted, other_clusters, taken_from)


def recorded_uid(cluster: Raw) -> str:
    """The recorded uid of a WorkerCluster, empty if it was never observed."""
    uid = (cluster.get("status") or {}).get("clusterUID")
    return uid if isinstance(uid, str) else ""


def find_conflict(record: IdentityRecord, uid: str) -> IdentityConflict | None:
    """Why a cluster with this uid is not the recorded cluster; None if it is, or if its admin accepts the uid."""
    if uid == record.accepted_uid:
        return None
    shown, accept = (
        printable(uid, _MAX_UID_LENGTH),
        f"kubectl annotate workercluster {record.name} --overwrite {names.ACCEPT_CLUSTER_ANNOTATION}=",
    )
    if record.uid not in ("", uid):
        return IdentityConflict(
            names.ConditionReason.IDENTITY_MISMATCH,
            "its kubeconfig leads to a different cluster than before: the uid of its namespace kube-system is "
            f"{shown}, and status.clusterUID is {printable(record.uid, _MAX_UID_LENGTH)}; nothing is read or written "
            "there, and workers in the earlier cluster are left as they are. Correct the kubeconfig; or, if this "
            f"cluster replaces the earlier one for good, run: {accept}{shlex.quote(shown)}",
        )
    if uid in record.other_cluster_by_uid:
        return IdentityConflict(
            names.ConditionReason.DUPLICATE_CLUSTER,
            f"it is the cluster of WorkerCluster {record.other_cluster_by_uid[uid]}: the uid of its namespace "
            f"kube-system is {shown} in both, and its free capacity would be counted twice. Delete one of the two; or, "
            f"if both are intended, for example for different nodes, run: {accept}{shlex.quote(shown)}",
        )
    return None


def _registration_order(cluster: Raw) -> tuple[str, str]:
    return str(meta(cluster).get("creationTimestamp") or ""), key_of(cluster)[1]
